// Random graphs, planned and coded, against the interpreter. A failure prints the seed; STITCH_FUZZ_SEEDS=from:to runs more.
#include <cstdlib>
#include <map>
#include <random>

#include "ir/builder.h"
#include "ir/ops.h"
#include "loop/generated_program.h"

namespace stitch::testing {
namespace {

using ir::DType;
using ir::GraphBuilder;
using ir::IntList;
using ir::Shape;
using ir::ValueRef;

// Grows a graph node by node; every step takes operands that fit from the values so far. Values stay within a few units, so that rounding
// does not grow without bound: what could blow up is squashed by tanh.
class RandomGraph {
 public:
  explicit RandomGraph(uint64_t seed) : random_(seed) {
    for (int i = 0; i < 3; ++i) values_.push_back(b_.input("in" + std::to_string(i), {DType::f32, shape()}));
    values_.push_back(b_.weight("w", {DType::f32, {dim()}}));
    for (const int64_t n : {2, 3, 4, 5, 8, 12, 16, 33}) {
      matrices_[n] = b_.weight(fmt::format("matrix{}", n), {DType::f32, {pick(1, 9), n}});
      biases_[n] = b_.weight(fmt::format("bias{}", n), {DType::f32, {shape_of(matrices_[n])[0]}});
    }
    for (int step = 0; step < 28; ++step) grow();
    std::vector<bool> read(b_.graph().nodes.size(), false);
    for (const ir::Node& n : b_.graph().nodes)
      for (const ValueRef& v : ir::operands(n)) read[static_cast<size_t>(v.node)] = true;
    int outputs = 0;
    for (const ValueRef v : values_)
      if (!read[static_cast<size_t>(v.node)] || chance(8)) b_.output("out" + std::to_string(outputs++), v);
  }
  const ir::Graph& graph() const { return b_.graph(); }

 private:
  int64_t pick(int64_t from, int64_t to) { return std::uniform_int_distribution<int64_t>(from, to)(random_); }
  bool chance(int64_t one_in) { return pick(1, one_in) == 1; }
  int64_t dim() {
    static constexpr int64_t kDims[] = {1, 2, 3, 4, 4, 5, 8, 8, 12, 16, 33};
    return kDims[pick(0, 10)];
  }
  Shape shape() {
    Shape s;
    for (int64_t rank = pick(1, 4); rank > 0; --rank) s.push_back(dim());
    if (ir::numel(s) > 3000) s.pop_back();
    return s;
  }
  ValueRef any() { return values_[static_cast<size_t>(chance(2) ? pick(static_cast<int64_t>(values_.size()) * 2 / 3, static_cast<int64_t>(values_.size()) - 1) : pick(0, static_cast<int64_t>(values_.size()) - 1))]; }
  const Shape& shape_of(ValueRef v) const { return b_.graph().type_of(v).shape; }
  DType type_of(ValueRef v) const { return b_.graph().type_of(v).dtype; }
  void keep(ValueRef v) {
    if (ir::numel(shape_of(v)) <= 8000) values_.push_back(v);
  }
  ValueRef squashed(ValueRef v) { return ir::is_floating(type_of(v)) ? b_.op("tanh", {{"x", v}}) : v; }
  ValueRef as_f32(ValueRef v) { return type_of(v) == DType::f32 ? v : b_.op("cast", {{"x", v}}, DType::f32); }

  void grow() {
    switch (pick(0, 9)) {
      case 0: return unary();
      case 1:
      case 2: return binary();
      case 3:
      case 4:
      case 5: return move();
      case 6:
      case 7: return reduce();
      case 8: return contract();
      default: return other();
    }
  }

  void unary() {
    static constexpr const char* kOps[] = {"neg", "abs", "sigmoid", "tanh", "relu", "gelu", "silu", "sin", "exp", "softplus", "sqrt", "erf", "hardswish", "mish"};
    const char* op = kOps[pick(0, 13)];
    ValueRef x = as_f32(any());
    if (std::string_view(op) == "sqrt") x = b_.op("sigmoid", {{"x", x}});
    const ValueRef y = b_.op(op, {{"x", x}});
    keep(std::string_view(op) == "exp" ? squashed(y) : y);
    if (chance(6)) keep(as_f32(b_.op("cast", {{"x", y}}, chance(2) ? DType::f16 : DType::bf16)));
  }

  void binary() {
    static constexpr const char* kOps[] = {"add", "sub", "mul", "maximum", "minimum"};
    const ValueRef x = as_f32(any());
    ir::Arg y = static_cast<double>(pick(-8, 8)) / 4;
    for (int attempt = 0; attempt < 8; ++attempt) {
      const ValueRef other = any();
      if (const auto joint = ir::broadcast(shape_of(x), shape_of(other)); joint && ir::numel(*joint) <= 6000) {
        y = as_f32(other);
        break;
      }
    }
    if (chance(6)) {
      const ValueRef c = b_.op("gt", {{"x", x}, {"y", y}});
      return keep(b_.op("where", {{"condition", c}, {"x", x}, {"y", 0.5}}));
    }
    const int64_t op = pick(0, 4);
    const ValueRef z = b_.op(kOps[op], {{"x", x}, {"y", y}});
    keep(op <= 2 && chance(2) ? squashed(z) : z);
  }

  void move() {
    const ValueRef x = any();
    const Shape& s = shape_of(x);
    const auto rank = static_cast<int64_t>(s.size());
    if (rank == 0) return keep(b_.op("view", {{"x", x}, {"size", IntList{1}}}));
    const int64_t d = pick(0, rank - 1), n = s[static_cast<size_t>(d)];
    switch (pick(0, 12)) {
      case 0: {
        IntList dims;
        for (int64_t i = 0; i < rank; ++i) dims.push_back(i);
        std::shuffle(dims.begin(), dims.end(), random_);
        return keep(b_.op("permute", {{"x", x}, {"dims", dims}}));
      }
      case 1: {  // merge with the next dim, or split off a factor
        IntList size(s.begin(), s.end());
        if (d + 1 < rank) {
          size[static_cast<size_t>(d)] *= size[static_cast<size_t>(d) + 1];
          size.erase(size.begin() + d + 1);
        } else if (n % 2 == 0) {
          size[static_cast<size_t>(d)] = 2;
          size.push_back(n / 2);
        } else {
          size.insert(size.begin() + d, 1);
        }
        return keep(b_.op("view", {{"x", x}, {"size", size}}));
      }
      case 2: {
        const int64_t start = pick(0, n - 1), step = pick(1, 3);
        return keep(b_.op("slice", {{"x", x}, {"dim", d}, {"start", start}, {"end", pick(start + 1, n)}, {"step", step}}));
      }
      case 3: return keep(b_.op("select", {{"x", x}, {"dim", d}, {"index", pick(0, n - 1)}}));
      case 4: {
        const ValueRef y = b_.op("flip", {{"x", x}, {"dims", IntList{d}}});
        return keep(b_.op("cat", {{"tensors", ir::ValueList{x, y, x}}, {"dim", d}}));
      }
      case 5: {
        const bool reflects = n > 2 && chance(2) && rank >= 2 && d == rank - 1;
        if (reflects) return keep(b_.op("pad", {{"x", x}, {"pad", IntList{pick(0, 2), pick(0, 2)}}, {"mode", std::string(chance(2) ? "reflect" : "replicate")}}));
        return keep(b_.op("pad", {{"x", x}, {"pad", IntList{pick(0, 2), pick(0, 3)}}, {"value", 0.25}}));
      }
      case 6: return keep(b_.op("roll", {{"x", x}, {"shifts", IntList{pick(-3, 3)}}, {"dims", IntList{d}}}));
      case 7: {
        IntList repeats(s.size(), 1);
        repeats[static_cast<size_t>(d)] = 2;
        if (chance(3)) repeats.insert(repeats.begin(), 2);
        return keep(b_.op("repeat", {{"x", x}, {"repeats", repeats}}));
      }
      case 8: {
        const int64_t size = pick(1, n);
        return keep(b_.op("unfold", {{"x", x}, {"dim", d}, {"size", size}, {"step", pick(1, 2)}}));
      }
      case 9:
        if (rank >= 2) return keep(b_.op(chance(2) ? "tril" : "triu", {{"x", x}, {"diagonal", pick(-2, 2)}}));
        break;
      case 10:
        if (rank >= 2) return keep(b_.op("diagonal", {{"x", x}, {"offset", int64_t{0}}, {"dim1", int64_t{0}}, {"dim2", rank - 1}}));
        break;
      case 11: {
        const ValueRef part = b_.op("slice", {{"x", x}, {"dim", d}, {"start", int64_t{0}}, {"end", (n + 1) / 2}});
        const ValueRef src = ir::is_floating(type_of(part)) ? b_.op("neg", {{"x", part}}) : part;
        return keep(b_.op("slice_scatter", {{"x", x}, {"src", src}, {"dim", d}, {"start", n - (n + 1) / 2}, {"end", n}}));
      }
      default: {
        Shape target = s;
        target.insert(target.begin(), 3);
        return keep(b_.op("expand", {{"x", x}, {"size", IntList(target.begin(), target.end())}}));
      }
    }
  }

  void reduce() {
    const ValueRef x = as_f32(any());
    const Shape& s = shape_of(x);
    const auto rank = static_cast<int64_t>(s.size());
    if (rank == 0) return;
    const int64_t d = pick(0, rank - 1);
    IntList dims;
    for (int64_t i = 0; i < rank; ++i)
      if (chance(2)) dims.push_back(i);
    if (chance(2)) dims = {rank - 1};
    const bool keepdim = chance(2);
    const int64_t n = s[static_cast<size_t>(d)];
    switch (pick(0, 9)) {
      case 0: return keep(b_.op("softmax", {{"x", x}, {"dim", d}}));
      case 1: return keep(b_.op("log_softmax", {{"x", x}, {"dim", chance(2) ? d : rank - 1}}));
      case 2: return keep(b_.op("layer_norm", {{"x", x}, {"normalized_shape", IntList(s.begin() + d, s.end())}}));
      case 3: return keep(b_.op("rms_norm", {{"x", x}, {"normalized_shape", IntList{s.back()}}, {"eps", 1e-5}}));
      case 4: return keep(squashed(b_.op("sum", {{"x", x}, {"dims", dims}, {"keepdim", keepdim}})));
      case 5: return keep(b_.op(chance(2) ? "amax" : "amin", {{"x", x}, {"dims", dims}, {"keepdim", keepdim}}));
      case 6: return keep(b_.op("logsumexp", {{"x", x}, {"dims", dims}, {"keepdim", keepdim}}));
      case 7: return keep(b_.op(chance(2) ? "var" : "std", {{"x", x}, {"dims", dims}, {"correction", 0.0}, {"keepdim", keepdim}}));
      case 8: return keep(squashed(b_.op("cumsum", {{"x", b_.op("mul", {{"x", x}, {"y", 1.0 / static_cast<double>(n)}})}, {"dim", d}})));
      default: return keep(b_.op("mean", {{"x", x}, {"dims", dims}, {"keepdim", keepdim}}));
    }
  }

  void contract() {
    const ValueRef x = as_f32(any());
    const Shape& s = shape_of(x);
    if (s.size() < 2) return;
    if (chance(2)) {
      IntList dims;
      for (size_t i = 0; i < s.size(); ++i) dims.push_back(static_cast<int64_t>(i));
      std::swap(dims[s.size() - 1], dims[s.size() - 2]);
      const ValueRef t = b_.op("permute", {{"x", chance(2) ? b_.op("sin", {{"x", x}}) : x}, {"dims", dims}});
      return keep(squashed(b_.op("matmul", {{"a", x}, {"b", t}})));
    }
    const auto w = matrices_.find(s.back());
    if (w == matrices_.end()) return;
    keep(b_.op("gelu", {{"x", b_.op("linear", {{"x", x}, {"weight", w->second}, {"bias", biases_.at(s.back())}})}}));
  }

  void other() {
    const ValueRef x = as_f32(any());
    const Shape& s = shape_of(x);
    if (s.empty()) return;
    const auto rank = static_cast<int64_t>(s.size());
    switch (pick(0, 3)) {
      case 0: {  // positions of a row's largest elements, used as indices
        const ValueRef best = b_.op("argmax", {{"x", x}, {"dim", rank - 1}});
        const ValueRef numbers = b_.op("arange", {{"start", 0.0}, {"end", static_cast<double>(s.back() * 3)}});
        const ValueRef table = b_.op("view", {{"x", b_.op("sin", {{"x", numbers}})}, {"size", IntList{s.back(), 3}}});
        return keep(b_.op("embedding", {{"weight", table}, {"indices", best}}));
      }
      case 1: {
        const auto n = static_cast<double>(s[0]);
        const ValueRef rows = b_.op("arange", {{"start", n - 1}, {"end", -1.0}, {"step", -1.0}}, DType::i64);
        return keep(b_.op("index_select", {{"x", x}, {"dim", int64_t{0}}, {"index", rows}}));
      }
      case 2:
        if (rank >= 3) {
          IntList size(s.begin() + 2, s.end());
          for (int64_t& e : size) e *= 2;
          return keep(b_.op("upsample_nearest", {{"x", x}, {"size", size}}));
        }
        break;
      default:
        if (rank == 4 && s[2] >= 2 && s[3] >= 2)
          return keep(b_.op("max_pool", {{"x", x}, {"kernel", IntList{2, 2}}, {"stride", IntList{2, 1}}, {"padding", IntList{1, 0}}, {"dilation", IntList{1, 1}}}));
        break;
    }
  }

  std::mt19937_64 random_;
  GraphBuilder b_;
  std::vector<ValueRef> values_;
  std::map<int64_t, ValueRef> matrices_, biases_;  // by the width of what they multiply
};

TEST(GeneratedProgram, RandomGraphsAgreeWithTheInterpreter) {
  int64_t from = 1, to = 3;
  if (const char* seeds = std::getenv("STITCH_FUZZ_SEEDS")) std::sscanf(seeds, "%ld:%ld", &from, &to);
  for (int64_t seed = from; seed <= to; ++seed) {
    const RandomGraph g(static_cast<uint64_t>(seed));
    EXPECT_TRUE(agrees_with_interpreter(g.graph(), {}, static_cast<uint64_t>(seed))) << "seed " << seed << "\n" << ir::print(g.graph());
  }
}

}  // namespace
}  // namespace stitch::testing
