#pragma once
// What the trusted parent and the worker say to each other over a SOCK_SEQPACKET pair, and how tensors lie in the
// memory they share. The worker shares its address space with hostile code, so nothing in a Reply is evidence for a
// verdict: the parent believes only the bytes of the shared output regions, the process status and its own clock.
// Plain structs only: the worker links nothing of this project.

#include <cstdint>

namespace stitch::run {

inline constexpr uint32_t kProtocolMagic = 0x53544831;  // "STH1"
inline constexpr int kSocketFd = 3;                     // the worker's end of the pair
inline constexpr int kMaxRank = 16;

enum class Op : uint32_t {
  hello,      // worker -> parent once, before the candidate is loaded; carries the worker's pid as kernel credentials
  map,        // a[0] region, a[1] bytes, a[2] tensor count; the memfd comes along as SCM_RIGHTS
  attach,     // a[0] region, a[1] bytes, a[2] tensor count: device memory of another process, whose handle comes along as
              // SCM_RIGHTS; the tensor table lies in region `text`. Its owner fills, poisons and reads it: nothing is copied
  load,       // dlopen, symbols, ABI version; manifest text goes to region `text`, its length is number[0]
  create,     // stitch_create with region `weights`; number[0] = workspace bytes; value[0] = seconds
  run,        // a[0] = input slot, a[1] = output slot, a[2] = workspace poison (16 bits); answers when outputs are in place
  arm,        // timed call, first half: a[0] input slot, a[1] output slot, a[2] bytes to flush; answers when idle
  go,         // second half: run, wait for the whole device; value[0] event ms, value[1] host ms until the event,
              // value[2] host ms from the event until the device was idle
  fetch,      // copy output slot a[0] from the device to the shared region
  upload,     // copy input slot a[0] from the shared region to the device
  null_call,  // answers at once: the cost of a message round trip
  memory,     // number[0] free, number[1] total device bytes; text region: device name; value[0] = L2 bytes
  destroy,    // stitch_destroy
  quit,
};

enum class Region : uint32_t { text, weights, inputs0, inputs1, inputs2, inputs3, outputs0, outputs1, workspace, count };
inline constexpr int kInputSlots = 4;
inline constexpr int kOutputSlots = 2;

// Why the worker could not do what was asked; `Reply::status`.
enum class WorkerStatus : int32_t {
  ok = 0,
  load_failed,      // dlopen refused
  missing_symbol,   // message names it
  abi_version,      // number[0] = the candidate's version
  create_failed,
  run_failed,
  device_failed,    // CUDA runtime missing or a CUDA call of ours failed
  bad_request,
};

// One tensor of a region. The table of records starts at byte 0 of the region; data is 256-byte aligned.
struct TensorRecord {
  uint64_t offset;
  uint64_t bytes;
  uint64_t fence;    // offset of a page the worker maps PROT_NONE, behind the trailing red zone
  int32_t ndim;
  uint8_t code, bits;  // DLPack
  uint16_t unused;
  int64_t shape[kMaxRank];
};

struct Request {
  uint32_t magic;
  Op op;
  uint64_t sequence;
  uint64_t a[4];
};

struct Reply {
  uint32_t magic;
  Op op;
  uint64_t sequence;
  WorkerStatus status;
  uint32_t unused;
  double value[4];
  uint64_t number[4];
  char message[768];
};

// Red zones are filled with kRedZone: a NaN in f16, bf16, f32 and f64, and a wild index as an integer, so
// that a read beyond a tensor shows in the result. Outputs and workspace are poisoned with a NaN or a finite pattern.
inline constexpr uint16_t kRedZone = 0xFFF7;
inline constexpr uint16_t kPoisonNan = 0xFFFF;
inline constexpr uint16_t kPoisonFinite = 0x5A5A;
inline constexpr uint64_t kPage = 4096;

}  // namespace stitch::run
