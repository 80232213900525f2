#include "ir/generate.h"

#include <unistd.h>

#include <cmath>
#include <numbers>

#include "base/parallel.h"

namespace stitch::ir {
namespace {

// splitmix64's finaliser (Steele, Lea and Flood, 2014).
uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

uint64_t stream_of(uint64_t seed, std::string_view name, std::string_view salt) {
  uint64_t h = mix(seed + 0x9e3779b97f4a7c15u);
  for (std::string_view part : {name, salt}) {
    for (unsigned char c : part) h = mix(h ^ (c + 0x9e3779b97f4a7c15u));
    h = mix(h ^ part.size());
  }
  return h;
}

double unit(uint64_t stream, uint64_t i) { return static_cast<double>(mix(stream + i * 0x9e3779b97f4a7c15u) >> 11) * 0x1p-53; }  // [0, 1)

double draw(const Generator& g, uint64_t stream, uint64_t i) {
  if (g.kind == "constant") return g.a;
  if (g.kind == "uniform") return g.a + (g.b - g.a) * unit(stream, i);
  if (g.kind == "randint") return std::floor(g.a + (g.b - g.a) * unit(stream, i));
  // Box-Muller; 1 - u keeps the logarithm's argument above 0.
  const double u = 1 - unit(stream, 2 * i), v = unit(stream, 2 * i + 1);
  return g.a + g.b * std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

// The last two dims as a matrix (or, for "rows", the last dim as a row).
void impose(Tensor& t, const std::string& structure) {
  const Shape& s = t.type.shape;
  if (structure.empty() || s.empty()) return;
  const int64_t columns = s.back(), rows = s.size() > 1 ? s[s.size() - 2] : 1;
  if (columns == 0 || rows == 0) return;
  const int64_t matrices = numel(s) / (rows * columns);
  const auto at = [&](int64_t m, int64_t i, int64_t j) { return (m * rows + i) * columns + j; };
  for (int64_t m = 0; m < matrices; ++m)
    for (int64_t i = 0; i < rows; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < columns; ++j) {
        if ((structure == "lower" && j > i) || (structure == "upper" && j < i)) set(t, at(m, i, j), 0);
        if (structure == "symmetric" && j > i && j < rows && i < columns) set(t, at(m, j, i), get(t, at(m, i, j)));
        sum += std::abs(get(t, at(m, i, j)));
      }
      for (int64_t j = 0; structure == "rows" && j < columns; ++j) set(t, at(m, i, j), sum > 0 ? std::abs(get(t, at(m, i, j))) / sum : 1.0 / static_cast<double>(columns));
    }
}

}  // namespace

Result<Tensor> generate(const TensorInfo& info, std::string_view salt) {
  if (!info.generator) return fail(ErrorKind::bad_input, "\"{}\" is neither stored nor generated; the bundle is incomplete.", info.name);
  const Generator& g = *info.generator;
  const bool real = g.kind == "normal" || g.kind == "uniform";
  if (real && !is_floating(info.type.dtype))
    return fail(ErrorKind::bad_input, "\"{}\" is {}, but its generator \"{}\" gives floats; use \"randint\".", info.name, to_string(info.type), g.kind);
  const uint64_t stream = stream_of(g.seed, info.name, salt);
  // The size comes from the bundle, so it is checked before anything is allocated: overcommit would kill the process later.
  const int64_t memory = static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGE_SIZE);
  if (bytes_of(info.type) > memory)
    return fail(ErrorKind::environment, "\"{}\" ({}) does not fit in this machine's memory; use one with more.", info.name, to_string(info.type));
  Tensor t = make_tensor(info.name, info.type);
  parallel_for(numel(info.type.shape), 1 << 15, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) set(t, i, draw(g, stream, static_cast<uint64_t>(i)));
  });
  impose(t, g.structure);
  return t;
}

}  // namespace stitch::ir
