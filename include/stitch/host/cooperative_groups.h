#pragma once
// Stand-in for cooperative groups: thread_block, grid_group (cooperative launches only), thread_block_tile of up to 32
// threads, coalesced_threads as the live lanes of the warp, reduce, inclusive_scan and exclusive_scan.

#include "cuda_runtime.h"

namespace cooperative_groups {

namespace detail {
inline unsigned block_rank() { return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; }
inline unsigned block_threads() { return blockDim.x * blockDim.y * blockDim.z; }
}  // namespace detail

class thread_block {
 public:
  void sync(STITCH_EMU_SITE) const { __syncthreads(file, line); }
  unsigned thread_rank() const { return detail::block_rank(); }
  unsigned size() const { return detail::block_threads(); }
  unsigned num_threads() const { return size(); }
  static dim3 group_index() { return blockIdx; }
  static dim3 thread_index() { return threadIdx; }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }

class grid_group {
 public:
  void sync(STITCH_EMU_SITE) const { stitch_emu::grid_barrier({file, line}); }
  bool is_valid() const { return true; }
  unsigned long long block_rank() const { return (static_cast<unsigned long long>(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x; }
  unsigned long long num_blocks() const { return static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z; }
  unsigned long long thread_rank() const { return block_rank() * detail::block_threads() + detail::block_rank(); }
  unsigned long long size() const { return num_blocks() * detail::block_threads(); }
  unsigned long long num_threads() const { return size(); }
  dim3 group_dim() const { return gridDim; }
};
inline grid_group this_grid() { return {}; }

// Any set of lanes of one warp; ranks count the lanes of the mask in order.
class warp_subset {
 public:
  explicit warp_subset(unsigned mask) : mask_(mask) {}
  unsigned thread_rank() const { return static_cast<unsigned>(__popc(mask_ & ((1u << stitch_emu::lane_id()) - 1u))); }
  unsigned size() const { return static_cast<unsigned>(__popc(mask_)); }
  unsigned num_threads() const { return size(); }
  unsigned mask() const { return mask_; }
  void sync(STITCH_EMU_SITE) const { __syncwarp(mask_, file, line); }
  template <class T> T shfl(T v, int rank, STITCH_EMU_SITE) const { return get(v, rank, "shfl", file, line); }
  template <class T> T shfl_down(T v, unsigned d, STITCH_EMU_SITE) const {
    const unsigned r = thread_rank() + d;
    return get(v, static_cast<int>(r < size() ? r : thread_rank()), "shfl_down", file, line);
  }
  template <class T> T shfl_up(T v, unsigned d, STITCH_EMU_SITE) const {
    const unsigned r = thread_rank();
    return get(v, static_cast<int>(r >= d ? r - d : r), "shfl_up", file, line);
  }
  template <class T> T shfl_xor(T v, unsigned m, STITCH_EMU_SITE) const {
    const unsigned r = thread_rank() ^ m;
    return get(v, static_cast<int>(r < size() ? r : thread_rank()), "shfl_xor", file, line);
  }
  unsigned ballot(int p, STITCH_EMU_SITE) const {
    const unsigned yes = __ballot_sync(mask_, p, file, line);
    unsigned out = 0;
    for (int lane = 0, rank = 0; lane < 32; ++lane)
      if (mask_ >> lane & 1) out |= (yes >> lane & 1u) << rank++;
    return out;
  }
  int any(int p, STITCH_EMU_SITE) const { return __any_sync(mask_, p, file, line); }
  int all(int p, STITCH_EMU_SITE) const { return __all_sync(mask_, p, file, line); }

 protected:
  template <class T> T get(T v, int rank, const char* what, const char* file, int line) const {
    int lane = 0;
    for (int seen = 0; lane < 32; ++lane)
      if (mask_ >> lane & 1 && seen++ == rank) break;
    return stitch_emu::shuffle(mask_, v, lane, what, {file, line});
  }
  unsigned mask_;
};

template <unsigned N, class Parent = void>
class thread_block_tile : public warp_subset {
  static_assert(N <= 32 && (N & (N - 1)) == 0, "the host target emulates tiles of up to 32 threads");

 public:
  thread_block_tile() : warp_subset((N == 32 ? ~0u : (1u << (N & 31)) - 1u) << (stitch_emu::lane_id() & ~(N - 1) & 31u)) {}
  static constexpr unsigned size() { return N; }
  static constexpr unsigned num_threads() { return N; }
  unsigned meta_group_rank() const { return detail::block_rank() / N; }
  unsigned meta_group_size() const { return (detail::block_threads() + N - 1) / N; }
};
template <unsigned N, class Parent>
inline thread_block_tile<N, Parent> tiled_partition(const Parent&) { return {}; }
class coalesced_group : public warp_subset {
 public:
  using warp_subset::warp_subset;
};
inline coalesced_group coalesced_threads() { return coalesced_group(__activemask()); }

template <class Group> inline void sync(const Group& g, STITCH_EMU_SITE) { g.sync(file, line); }

template <class T = void> struct plus { template <class U> U operator()(const U& a, const U& b) const { return a + b; } };
template <class T = void> struct less { template <class U> U operator()(const U& a, const U& b) const { return b < a ? b : a; } };
template <class T = void> struct greater { template <class U> U operator()(const U& a, const U& b) const { return a < b ? b : a; } };
template <class T = void> struct bit_and { template <class U> U operator()(const U& a, const U& b) const { return a & b; } };
template <class T = void> struct bit_or { template <class U> U operator()(const U& a, const U& b) const { return a | b; } };
template <class T = void> struct bit_xor { template <class U> U operator()(const U& a, const U& b) const { return a ^ b; } };

namespace detail {
// The operator may have state, so every lane gathers all the values and folds them itself.
template <class T>
struct GatherArgs {
  T value;
  T all[32];
};
template <class T>
void combine_gather(void* const* lanes, unsigned participants) {
  for (int to = 0; to < 32; ++to) {
    if (!(participants >> to & 1)) continue;
    int rank = 0;
    for (int from = 0; from < 32; ++from)
      if (participants >> from & 1)
        static_cast<GatherArgs<T>*>(lanes[to])->all[rank++] = static_cast<GatherArgs<T>*>(lanes[from])->value;
  }
}
template <class T, class Op>
T fold(const warp_subset& g, T v, Op op, unsigned count, const char* what, const char* file, int line) {
  GatherArgs<T> args{};
  args.value = v;
  stitch_emu::warp_collective(g.mask(), what, &combine_gather<T>, &args, {file, line});
  T total = args.all[0];
  for (unsigned i = 1; i < count; ++i) total = op(total, args.all[i]);
  return total;
}
}  // namespace detail

template <class T, class Op>
inline T reduce(const warp_subset& g, T v, Op op, STITCH_EMU_SITE) { return detail::fold(g, v, op, g.size(), "reduce", file, line); }
template <class T, class Op = plus<T>>
inline T inclusive_scan(const warp_subset& g, T v, Op op = {}, STITCH_EMU_SITE) {
  return detail::fold(g, v, op, g.thread_rank() + 1, "inclusive_scan", file, line);
}
template <class T, class Op = plus<T>>
inline T exclusive_scan(const warp_subset& g, T v, Op op = {}, STITCH_EMU_SITE) {
  const T total = detail::fold(g, v, op, g.thread_rank() ? g.thread_rank() : 1, "exclusive_scan", file, line);
  return g.thread_rank() ? total : T{};
}

template <class Group>
STITCH_EMU_INLINE void memcpy_async(const Group& g, void* to, const void* from, size_t bytes) {
  const unsigned n = g.size();
  for (size_t i = g.thread_rank(); i < bytes; i += n) static_cast<char*>(to)[i] = static_cast<const char*>(from)[i];
}
template <class Group> inline void wait(const Group& g, STITCH_EMU_SITE) { g.sync(file, line); }
template <int N, class Group> inline void wait_prior(const Group& g, STITCH_EMU_SITE) { g.sync(file, line); }

}  // namespace cooperative_groups
