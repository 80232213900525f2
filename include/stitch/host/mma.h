#pragma once
// Stand-in for nvcuda::wmma: fragments are spread over the lanes of a warp (element e of the tile, row-major, lives in lane
// e % 32), mma_sync is one warp collective that multiplies the whole tile with fp32 (fp64, int32) accumulation.
// As on the device, which lane holds which element is not for programs to know; x[] and num_elements are there for
// element-wise work.

#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace nvcuda {
namespace wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32;
}

// TF32 keeps 10 bits of fraction; cvt.rna rounds half away from zero.
inline float __float_to_tf32(float f) {
  if (!isfinite(f)) return f;
  return __uint_as_float((__float_as_uint(f) + 0x1000u) & 0xffffe000u);
}

namespace detail {
template <class T> struct Storage { using type = T; };
template <> struct Storage<precision::tf32> { using type = float; };

template <int M, int N, int K, class T> struct Supported { static constexpr bool value = false; };
template <class T> struct Half { static constexpr bool value = false; };
template <> struct Half<__half> { static constexpr bool value = true; };
template <> struct Half<__nv_bfloat16> { static constexpr bool value = true; };
template <> struct Half<signed char> { static constexpr bool value = true; };
template <> struct Half<unsigned char> { static constexpr bool value = true; };
template <class T> struct Supported<16, 16, 16, T> { static constexpr bool value = Half<T>::value; };
template <class T> struct Supported<32, 8, 16, T> { static constexpr bool value = Half<T>::value; };
template <class T> struct Supported<8, 32, 16, T> { static constexpr bool value = Half<T>::value; };
template <> struct Supported<16, 16, 8, precision::tf32> { static constexpr bool value = true; };
template <> struct Supported<8, 8, 4, double> { static constexpr bool value = true; };

template <class Use, int M, int N, int K> struct Shape;
template <int M, int N, int K> struct Shape<matrix_a, M, N, K> { static constexpr int rows = M, columns = K; };
template <int M, int N, int K> struct Shape<matrix_b, M, N, K> { static constexpr int rows = K, columns = N; };
template <int M, int N, int K> struct Shape<accumulator, M, N, K> { static constexpr int rows = M, columns = N; };
template <class Layout> struct IsRow { static constexpr bool value = true; };
template <> struct IsRow<col_major> { static constexpr bool value = false; };
template <class A, class B> struct Same { static constexpr bool value = false; };
template <class A> struct Same<A, A> { static constexpr bool value = true; };
template <class T> struct Accumulate { using type = float; };
template <> struct Accumulate<double> { using type = double; };
template <> struct Accumulate<int> { using type = int; };
}  // namespace detail

template <class Use, int M, int N, int K, class T, class Layout = void>
class fragment {
 public:
  using element_type = T;
  using storage_element_type = typename detail::Storage<T>::type;
  static constexpr int rows = detail::Shape<Use, M, N, K>::rows, columns = detail::Shape<Use, M, N, K>::columns;
  static_assert(detail::Same<Use, accumulator>::value || detail::Supported<M, N, K, T>::value,
                "this tile size and type is not a wmma operation");
  static_assert(detail::Same<Use, accumulator>::value == detail::Same<Layout, void>::value,
                "matrix_a and matrix_b fragments need a layout, accumulators have none");
  static constexpr int num_elements = rows * columns / 32;
  static constexpr int num_storage_elements = num_elements;
  storage_element_type x[num_elements];
};

template <class Use, int M, int N, int K, class T, class Layout>
inline void fill_fragment(fragment<Use, M, N, K, T, Layout>& f, const typename fragment<Use, M, N, K, T, Layout>::storage_element_type& v) {
  for (auto& e : f.x) e = v;
}

namespace detail {
template <class F, class P>
STITCH_EMU_INLINE void load(F& f, const P* p, unsigned ld, bool row_major_memory, stitch_emu::Site site) {
  if (reinterpret_cast<uintptr_t>(p) % 16 != 0)
    stitch_emu::fatal("misaligned", "load_matrix_sync needs a pointer aligned to 256 bits (at least 16 bytes)", site);
  const int lane = static_cast<int>(stitch_emu::lane_id());
  for (int i = 0; i < F::num_elements; ++i) {
    const int e = i * 32 + lane, r = e / F::columns, c = e % F::columns;
    f.x[i] = p[row_major_memory ? r * static_cast<int>(ld) + c : c * static_cast<int>(ld) + r];
  }
}
}  // namespace detail

template <class Use, int M, int N, int K, class T, class Layout, class P>
STITCH_EMU_INLINE void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& f, const P* p, unsigned ld, STITCH_EMU_SITE) {
  __syncwarp(0xffffffffu, file, line);
  detail::load(f, p, ld, detail::IsRow<Layout>::value, {file, line});
}
template <int M, int N, int K, class T, class P>
STITCH_EMU_INLINE void load_matrix_sync(fragment<accumulator, M, N, K, T, void>& f, const P* p, unsigned ld, layout_t layout, STITCH_EMU_SITE) {
  __syncwarp(0xffffffffu, file, line);
  detail::load(f, p, ld, layout == mem_row_major, {file, line});
}
template <class P, int M, int N, int K, class T>
STITCH_EMU_INLINE void store_matrix_sync(P* p, const fragment<accumulator, M, N, K, T, void>& f, unsigned ld, layout_t layout, STITCH_EMU_SITE) {
  using F = fragment<accumulator, M, N, K, T, void>;
  __syncwarp(0xffffffffu, file, line);
  if (reinterpret_cast<uintptr_t>(p) % 16 != 0)
    stitch_emu::fatal("misaligned", "store_matrix_sync needs a pointer aligned to 256 bits (at least 16 bytes)", {file, line});
  const int lane = static_cast<int>(stitch_emu::lane_id());
  for (int i = 0; i < F::num_elements; ++i) {
    const int e = i * 32 + lane, r = e / F::columns, c = e % F::columns;
    p[layout == mem_row_major ? r * static_cast<int>(ld) + c : c * static_cast<int>(ld) + r] = f.x[i];
  }
}

namespace detail {
template <class D, class A, class B, class C>
struct MmaArguments {
  D* d;
  const A* a;
  const B* b;
  const C* c;
};
template <class Acc, class T> inline Acc widen(const T& v) { return static_cast<Acc>(static_cast<float>(v)); }
template <> inline double widen<double, double>(const double& v) { return v; }
template <> inline int widen<int, signed char>(const signed char& v) { return v; }
template <> inline int widen<int, unsigned char>(const unsigned char& v) { return v; }
template <> inline int widen<int, int>(const int& v) { return v; }

template <int M, int N, int K, class D, class A, class B, class C>
void combine_mma(void* const* lanes, unsigned participants) {
  using Acc = typename Accumulate<typename C::element_type>::type;
  using Arguments = MmaArguments<D, A, B, C>;
  if (participants != 0xffffffffu) return;
  Acc a[M * K], b[K * N];
  for (int lane = 0; lane < 32; ++lane) {
    auto* args = static_cast<Arguments*>(lanes[lane]);
    for (int i = 0; i < A::num_elements; ++i) a[i * 32 + lane] = widen<Acc>(args->a->x[i]);
    for (int i = 0; i < B::num_elements; ++i) b[i * 32 + lane] = widen<Acc>(args->b->x[i]);
  }
  // tf32 hardware ignores the low bits of operands that the program did not round.
  if constexpr (Same<typename A::element_type, precision::tf32>::value) {
    for (auto& v : a) v = __uint_as_float(__float_as_uint(v) & 0xffffe000u);
    for (auto& v : b) v = __uint_as_float(__float_as_uint(v) & 0xffffe000u);
  }
  for (int r = 0; r < M; ++r)
    for (int c = 0; c < N; ++c) {
      const int e = r * N + c;
      auto* args = static_cast<Arguments*>(lanes[e % 32]);
      Acc sum = widen<Acc>(args->c->x[e / 32]);
      for (int k = 0; k < K; ++k) sum += a[r * K + k] * b[k * N + c];
      args->d->x[e / 32] = static_cast<typename D::storage_element_type>(sum);
    }
}
}  // namespace detail

template <int M, int N, int K, class TD, class TA, class LA, class TB, class LB, class TC>
inline void mma_sync(fragment<accumulator, M, N, K, TD, void>& d, const fragment<matrix_a, M, N, K, TA, LA>& a,
                     const fragment<matrix_b, M, N, K, TB, LB>& b, const fragment<accumulator, M, N, K, TC, void>& c,
                     bool = false, STITCH_EMU_SITE) {
  using D = fragment<accumulator, M, N, K, TD, void>;
  using A = fragment<matrix_a, M, N, K, TA, LA>;
  using B = fragment<matrix_b, M, N, K, TB, LB>;
  using C = fragment<accumulator, M, N, K, TC, void>;
  detail::MmaArguments<D, A, B, C> args{&d, &a, &b, &c};
  stitch_emu::warp_collective(0xffffffffu, "mma_sync", &detail::combine_mma<M, N, K, D, A, B, C>, &args, {file, line});
}

}  // namespace wmma
}  // namespace nvcuda
