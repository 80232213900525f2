#include "suite/gpus.h"

#include <cstdlib>
#include <sstream>

#include "base/process.h"

namespace stitch::suite {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) {
    part.erase(0, part.find_first_not_of(' '));
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

}  // namespace

std::vector<Gpu> find_gpus() {
  ProcessSpec spec;
  spec.argv = {"nvidia-smi", "--query-gpu=index,uuid,memory.total,name", "--format=csv,noheader,nounits"};
  spec.timeout = std::chrono::seconds(60);
  const auto r = run_process(spec);
  if (!r || !r->ok()) return {};
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::vector<Gpu> all, chosen;
  std::vector<std::string> uuids;
  for (const std::string& line : split(r->out, '\n'))
    if (const auto f = split(line, ','); f.size() >= 4) {
      all.push_back({f[0], f[3], std::strtoull(f[2].c_str(), nullptr, 10) << 20});
      uuids.push_back(f[1]);
    }
  if (!visible) return all;
  for (const std::string& id : split(visible, ','))
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i].id == id || uuids[i].starts_with(id)) chosen.push_back({id, all[i].name, all[i].memory});
  return chosen;
}

uint64_t tensor_bytes(const ir::Bundle& b) {
  return static_cast<uint64_t>(ir::bytes_of(ir::types_of(b.inputs)) + ir::bytes_of(ir::types_of(b.weights)) + ir::bytes_of(ir::output_types(b)));
}

}  // namespace stitch::suite
