#pragma once
// The PyTorch process (python/stitchcuda/baseline.py) that holds the tensors of a GPU verification, judges them and times the baselines.

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "base/files.h"
#include "base/json.h"
#include "base/result.h"
#include "ir/bundle.h"

namespace stitch::verify {

class ReferenceWorker {
 public:
  struct Spec {
    std::filesystem::path source;      // a Python file with Model and get_inputs()
    std::string device = "cuda";       // or "cpu"
    std::string precision_class;       // "fp32", "default", ...
    std::filesystem::path python;      // "": $STITCHCUDA_PYTHON, the venv of data_home(), python3
  };
  // environment or bad_input error: no torch, no source file, a model that cannot be built.
  static Result<std::unique_ptr<ReferenceWorker>> start(const ir::Bundle&, const Spec&);
  ~ReferenceWorker();

  // One request of python/stitchcuda/device_checks.py, answered as JSON. error: PyTorch's sentence, or that it died.
  Result<Json> ask(const Json& request, std::chrono::seconds timeout);
  // The descriptor that came with the answer to a "share" request; the caller closes it.
  Result<int> receive_descriptor();
  Status build_baseline(const std::string& mode);
  // Seconds spent waiting for answers, by request; what an answer says of its parts ("seconds") is counted under those names.
  const std::map<std::string, double>& spent() const { return spent_; }
  void add_spent(const std::string& step, std::chrono::steady_clock::time_point since);

  uint64_t device_bytes() const { return device_bytes_; }  // memory of the device; 0 on the CPU
  const std::string& device_name() const { return device_name_; }
  const std::string& torch_version() const { return torch_version_; }

 private:
  ReferenceWorker() = default;

  const ir::Bundle* bundle_ = nullptr;
  std::unique_ptr<TempFolder> folder_;
  int child_ = -1, requests_ = -1, answers_ = -1, descriptors_ = -1;
  uint64_t device_bytes_ = 0;
  std::map<std::string, double> spent_;
  std::string buffer_, device_name_, torch_version_;
};

}  // namespace stitch::verify
