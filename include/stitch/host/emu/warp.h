#pragma once
// Warp-level primitives on top of stitch_emu::warp_collective.

#include "core.h"

namespace stitch_emu {

template <class T>
struct ShuffleArgs {
  T value, result;
  int source;  // absolute lane; own lane when the source falls outside the segment
};
template <class T>
void combine_shuffle(void* const* lanes, unsigned participants) {
  for (int lane = 0; lane < 32; ++lane) {
    if (!(participants >> lane & 1)) continue;
    auto* args = static_cast<ShuffleArgs<T>*>(lanes[lane]);
    if (participants >> args->source & 1)
      args->result = static_cast<ShuffleArgs<T>*>(lanes[args->source])->value;
    else
      bad_shuffle_source(lane, args->source);
  }
}
template <class T>
inline T shuffle(unsigned mask, T value, int source, const char* what, Site site) {
  ShuffleArgs<T> args{value, value, source & 31};
  warp_collective(mask, what, &combine_shuffle<T>, &args, site);
  return args.result;
}

template <class T>
struct ReduceArgs {
  T value, result;
};
template <class T, class Op>
void combine_reduce(void* const* lanes, unsigned participants) {
  bool first = true;
  T total{};
  for (int lane = 0; lane < 32; ++lane)
    if (participants >> lane & 1) {
      const T v = static_cast<ReduceArgs<T>*>(lanes[lane])->value;
      total = first ? v : Op::apply(total, v);
      first = false;
    }
  for (int lane = 0; lane < 32; ++lane)
    if (participants >> lane & 1) static_cast<ReduceArgs<T>*>(lanes[lane])->result = total;
}
template <class Op, class T>
inline T warp_reduce(unsigned mask, T value, const char* what, Site site) {
  ReduceArgs<T> args{value, value};
  warp_collective(mask, what, &combine_reduce<T, Op>, &args, site);
  return args.result;
}
struct OpAdd { template <class T> static T apply(T a, T b) { return static_cast<T>(a + b); } };
struct OpMin { template <class T> static T apply(T a, T b) { return b < a ? b : a; } };
struct OpMax { template <class T> static T apply(T a, T b) { return a < b ? b : a; } };
struct OpAnd { template <class T> static T apply(T a, T b) { return static_cast<T>(a & b); } };
struct OpOr { template <class T> static T apply(T a, T b) { return static_cast<T>(a | b); } };
struct OpXor { template <class T> static T apply(T a, T b) { return static_cast<T>(a ^ b); } };

inline void combine_nothing(void* const*, unsigned) {}
template <class T>
void combine_match(void* const* lanes, unsigned participants) {
  for (int lane = 0; lane < 32; ++lane) {
    if (!(participants >> lane & 1)) continue;
    auto* args = static_cast<ShuffleArgs<T>*>(lanes[lane]);
    unsigned same = 0;
    for (int other = 0; other < 32; ++other)
      if (participants >> other & 1 && static_cast<ShuffleArgs<T>*>(lanes[other])->value == args->value)
        same |= 1u << other;
    args->source = static_cast<int>(same);
  }
}
inline unsigned ballot(unsigned mask, bool predicate, const char* what, Site site) {
  return warp_reduce<OpOr>(mask, predicate ? 1u << lane_id() : 0u, what, site);
}

}  // namespace stitch_emu

template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, STITCH_EMU_SITE) {
  const int lane = static_cast<int>(stitch_emu::lane_id());
  return stitch_emu::shuffle(mask, value, (lane & ~(width - 1)) | (source & (width - 1)), "__shfl_sync", {file, line});
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, STITCH_EMU_SITE) {
  const int lane = static_cast<int>(stitch_emu::lane_id()), first = lane & ~(width - 1);
  const int source = lane - static_cast<int>(delta);
  return stitch_emu::shuffle(mask, value, source < first ? lane : source, "__shfl_up_sync", {file, line});
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, STITCH_EMU_SITE) {
  const int lane = static_cast<int>(stitch_emu::lane_id()), last = lane | (width - 1);
  const int source = lane + static_cast<int>(delta);
  return stitch_emu::shuffle(mask, value, source > last ? lane : source, "__shfl_down_sync", {file, line});
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, STITCH_EMU_SITE) {
  const int lane = static_cast<int>(stitch_emu::lane_id()), source = lane ^ lane_mask;
  return stitch_emu::shuffle(mask, value, source > (lane | (width - 1)) ? lane : source, "__shfl_xor_sync", {file, line});
}

inline void __syncwarp(unsigned mask = 0xffffffffu, STITCH_EMU_SITE) {
  int nothing = 0;
  stitch_emu::warp_collective(mask, "__syncwarp", &stitch_emu::combine_nothing, &nothing, {file, line});
}
inline unsigned __ballot_sync(unsigned mask, int predicate, STITCH_EMU_SITE) {
  return stitch_emu::ballot(mask, predicate != 0, "__ballot_sync", {file, line});
}
inline int __any_sync(unsigned mask, int predicate, STITCH_EMU_SITE) {
  return stitch_emu::ballot(mask, predicate != 0, "__any_sync", {file, line}) != 0;
}
inline int __all_sync(unsigned mask, int predicate, STITCH_EMU_SITE) {
  return stitch_emu::ballot(mask, predicate == 0, "__all_sync", {file, line}) == 0;
}
inline int __uni_sync(unsigned mask, int predicate, STITCH_EMU_SITE) {
  const unsigned yes = stitch_emu::ballot(mask, predicate != 0, "__uni_sync", {file, line});
  return yes == 0 || (yes & mask) == mask;
}
inline unsigned __activemask() { return stitch_emu::active_mask(); }
template <class T>
inline unsigned __match_any_sync(unsigned mask, T value, STITCH_EMU_SITE) {
  stitch_emu::ShuffleArgs<T> args{value, value, 0};
  stitch_emu::warp_collective(mask, "__match_any_sync", &stitch_emu::combine_match<T>, &args, {file, line});
  return static_cast<unsigned>(args.source);
}
template <class T>
inline unsigned __match_all_sync(unsigned mask, T value, int* predicate, STITCH_EMU_SITE) {
  const unsigned same = __match_any_sync(mask, value, file, line);
  *predicate = same == mask;
  return *predicate ? mask : 0;
}

#define STITCH_EMU_REDUCE(name, Op, T)                                                     \
  inline T name(unsigned mask, T value, STITCH_EMU_SITE) {                                 \
    return stitch_emu::warp_reduce<stitch_emu::Op>(mask, value, #name, {file, line});      \
  }
STITCH_EMU_REDUCE(__reduce_add_sync, OpAdd, unsigned)
STITCH_EMU_REDUCE(__reduce_add_sync, OpAdd, int)
STITCH_EMU_REDUCE(__reduce_min_sync, OpMin, unsigned)
STITCH_EMU_REDUCE(__reduce_min_sync, OpMin, int)
STITCH_EMU_REDUCE(__reduce_max_sync, OpMax, unsigned)
STITCH_EMU_REDUCE(__reduce_max_sync, OpMax, int)
STITCH_EMU_REDUCE(__reduce_and_sync, OpAnd, unsigned)
STITCH_EMU_REDUCE(__reduce_or_sync, OpOr, unsigned)
STITCH_EMU_REDUCE(__reduce_xor_sync, OpXor, unsigned)
#undef STITCH_EMU_REDUCE
