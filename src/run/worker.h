#pragma once
// The trusted side of one candidate process: starts it in a sandbox, hands it memory, makes calls with a deadline, and
// turns every way a candidate can misbehave into an outcome. Nothing the worker says decides correctness or time.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "run/protocol.h"
#include "run/region.h"
#include "run/sandbox.h"

namespace stitch::run {

enum class FailureKind {
  not_elf,          // not a shared library for this processor
  load_failed, missing_symbol, abi_version, manifest,
  create_failed, run_failed,   // the candidate said so itself
  crashed,          // died of a signal
  exited,           // left the process during a call
  timed_out,
  memory_limit, thread_limit, output_flood,
  protocol,         // an answer that the worker's own code never gives: the candidate wrote to the channel
  device,           // CUDA could not be used
};
const char* name_of(FailureKind);

// What went wrong with the candidate: one sentence, and the tail of what it printed as quoted evidence.
struct CandidateFailure {
  FailureKind kind;
  std::string sentence;
  std::string printed;
};

template <class T>
using Outcome = tl::expected<T, CandidateFailure>;

struct WorkerSpec {
  std::filesystem::path candidate;                    // the .so
  bool cuda = false;
  std::filesystem::path cudart;                       // libcudart.so.*, cuda target only
  std::filesystem::path driver;                       // "": libcuda.so.1
  std::vector<std::filesystem::path> library_folders; // for LD_LIBRARY_PATH
  SandboxLevel sandbox = SandboxLevel::automatic;
  bool heap_buffers = false;                          // exact-size heap copies, for sanitized builds
  std::filesystem::path writable;                     // folder the candidate may write to; "" = none
  std::string preload;                                // LD_PRELOAD (sanitizer runtime)
  std::vector<std::pair<std::string, std::string>> environment;
  std::chrono::milliseconds load_timeout{60000};      // load and create
  std::chrono::milliseconds call_timeout{120000};     // one run
  uint64_t memory_limit = uint64_t{8} << 30;          // host target: beyond the shared regions
  int thread_limit = 512;
  uint64_t output_limit = 16u << 20;                  // bytes printed in total
};

class Worker {
 public:
  // Starts the process and waits for its greeting. Error: the worker program is missing or the sandbox cannot start.
  static Result<std::unique_ptr<Worker>> start(const WorkerSpec&);
  ~Worker();

  Outcome<Reply> map(Region, const SharedRegion&, uint64_t tensors);
  // Device memory that another trusted process has allocated and exported as descriptor `fd`.
  Outcome<Reply> attach(Region, int fd, const RegionLayout&, uint64_t bytes);
  Outcome<std::string> load();                        // manifest text
  Outcome<Reply> create();
  // input slot, output slot, workspace poison, also fetch weights and workspace from a device
  Outcome<Reply> run(int inputs, int outputs, uint16_t poison, bool fetch_all = false);
  Outcome<Reply> call(Op, uint64_t a0 = 0, uint64_t a1 = 0, uint64_t a2 = 0, uint64_t a3 = 0);
  void quit();                                        // asks, waits briefly, kills

  int pid() const { return pid_; }                    // in the parent's PID namespace
  SandboxLevel sandbox() const { return level_; }
  const std::string& sandbox_note() const { return note_; }  // "" or what of it is missing
  double last_wall_ms() const { return wall_ms_; }    // parent clock from sending a request to its answer
  double l2_bytes() const { return l2_bytes_; }
  uint64_t peak_rss() const { return peak_rss_; }
  int peak_threads() const { return peak_threads_; }
  std::string printed() const;  // what the candidate wrote; never parsed for a verdict

  // Code of the worker and the CUDA libraries in its memory against the files on disk, and its relocated tables against
  // their state before the candidate was loaded. "" = unchanged, a sentence = what changed; nullopt = could not be read.
  std::optional<std::string> changed_code() const;

 private:
  Worker() = default;
  static Result<std::unique_ptr<Worker>> start_at(const WorkerSpec&, SandboxLevel);
  Outcome<Reply> transact(Request, int fd, std::chrono::milliseconds timeout);
  tl::unexpected<CandidateFailure> ended(const std::string& during);
  tl::unexpected<CandidateFailure> stop(FailureKind, std::string sentence);
  void drain();
  std::optional<CandidateFailure> over_limits();
  void snapshot_code();
  void reap(bool kill_now);

  WorkerSpec spec_;
  SandboxLevel level_ = SandboxLevel::none;
  std::string note_, out_, err_;
  uint64_t printed_bytes_ = 0, mapped_bytes_ = 0, peak_rss_ = 0, sequence_ = 0;
  int peak_threads_ = 0;
  int child_ = -1, pid_ = -1, socket_ = -1, stdout_ = -1, stderr_ = -1;
  int exit_status_ = 0;
  bool reaped_ = false;
  double wall_ms_ = 0, l2_bytes_ = 0;
  std::unique_ptr<SharedRegion> text_;
  struct CodeSnapshot;
  std::shared_ptr<CodeSnapshot> code_;
};

// build/stitch_worker: $STITCHCUDA_WORKER, else beside the running program, else in the source root's build folder.
Result<std::filesystem::path> worker_program();

}  // namespace stitch::run
