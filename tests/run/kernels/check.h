#pragma once
// For the kernels' tests: buffers, random data, comparison. The tests compile with nvcc as well as for the host target.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "stitch/runtime.h"

using Doubles = std::vector<double>;

inline int failures = 0;

inline void require(stitch::Failure f, const std::string& what) {
  if (!f) return;
  std::printf("%s: %s\n", what.c_str(), f);
  std::exit(2);
}
inline void require(cudaError_t e) { require(stitch::check(e, "CUDA"), "runtime"); }

template <class T>
T from_double(double x) {
  if constexpr (std::is_same_v<T, __half>) return __float2half(static_cast<float>(x));
  else if constexpr (std::is_same_v<T, __nv_bfloat16>) return __float2bfloat16(static_cast<float>(x));
  else return static_cast<T>(x);
}
template <class T>
double to_double(T x) {
  if constexpr (std::is_same_v<T, __half>) return __half2float(x);
  else if constexpr (std::is_same_v<T, __nv_bfloat16>) return __bfloat162float(x);
  else return static_cast<double>(x);
}

// Device memory with a copy in host memory. Fresh memory holds NaN (all bits set), so that a result that is not
// written shows.
template <class T>
class Buffer {
 public:
  explicit Buffer(size_t n) : n_(n) {
    if (n == 0) return;
    require(cudaMalloc(reinterpret_cast<void**>(&p_), n * sizeof(T)));
    require(cudaMemset(p_, 0xff, n * sizeof(T)));
  }
  explicit Buffer(const Doubles& values) : Buffer(values.size()) {
    const std::unique_ptr<T[]> host(new T[n_]);
    for (size_t i = 0; i < n_; ++i) host[i] = from_double<T>(values[i]);
    require(cudaMemcpy(p_, host.get(), n_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~Buffer() { cudaFree(p_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  operator T*() const { return p_; }
  T* get() const { return p_; }
  Doubles read() const {
    require(cudaDeviceSynchronize());
    std::vector<char> bytes(n_ * sizeof(T));
    require(cudaMemcpy(bytes.data(), p_, bytes.size(), cudaMemcpyDeviceToHost));
    Doubles out;
    for (size_t i = 0; i < n_; ++i) out.push_back(to_double(reinterpret_cast<const T*>(bytes.data())[i]));
    return out;
  }

 private:
  T* p_ = nullptr;
  size_t n_;
};

// Values of the element type T, so that the reference computes with what the kernel sees.
template <class T = float>
Doubles random_values(size_t n, unsigned seed, double low = -1, double high = 1) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> draw(low, high);
  Doubles out(n);
  for (double& v : out) v = to_double(from_double<T>(draw(engine)));
  return out;
}

// A file of doubles.
inline Doubles read_values(const char* path) {
  std::FILE* const file = std::fopen(path, "rb");
  if (!file) std::printf("cannot read %s\n", path), std::exit(2);
  Doubles out;
  for (double x; std::fread(&x, sizeof x, 1, file) == 1;) out.push_back(x);
  std::fclose(file);
  return out;
}

template <class T>
double tolerance() {
  if (std::is_same_v<T, double>) return 1e-12;
  if (std::is_same_v<T, __half>) return 2e-3;
  if (std::is_same_v<T, __nv_bfloat16>) return 1.6e-2;
  return 1e-5;
}

// Largest difference, relative to the largest expected value; NaN and infinities must agree exactly.
inline void expect_close(const std::string& what, const Doubles& got, const Doubles& want, double tolerance) {
  double scale = 1e-3, worst = 0;
  for (double w : want)
    if (std::isfinite(w)) scale = std::max(scale, std::fabs(w));
  size_t at = 0;
  bool wrong = got.size() != want.size();
  for (size_t i = 0; i < want.size() && !wrong; ++i) {
    if (std::isnan(want[i]) && std::isnan(got[i])) continue;
    const double error = got[i] == want[i] ? 0 : std::fabs(got[i] - want[i]) / scale;
    if (!(error <= worst)) {
      worst = error;
      at = i;
    }
    if (std::isnan(error)) break;
  }
  if (wrong || !(worst <= tolerance)) {
    std::printf("FAILED %s: error %.3g at %zu (got %.9g, want %.9g)\n", what.c_str(), worst, at, got[at], want[at]);
    ++failures;
  }
}
