#include "loop/generated_program.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <random>

#include "interp/interpreter.h"
#include "ir/builder.h"
#include "ir/ops.h"
#include "ir/samples.h"
#include "plan/plan.h"
#include "plan/prepare.h"
#include "run/host/build_program.h"
#include "stitch/abi.h"

namespace stitch::testing {
namespace {

using ir::DType;

DLDataType dlpack(DType t) {
  const auto bits = static_cast<uint8_t>(8 * ir::size_of(t));
  if (t == DType::bf16) return {kDLBfloat, bits, 1};
  if (ir::is_floating(t)) return {kDLFloat, bits, 1};
  if (t == DType::b8) return {STITCH_DL_BOOL, bits, 1};
  return {static_cast<uint8_t>(t == DType::u8 ? kDLUInt : kDLInt), bits, 1};
}

// Memory shared with a child process, page-aligned (so 256-byte aligned, as device allocations are).
class Shared {
 public:
  explicit Shared(size_t bytes) : bytes_(bytes + 1) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(data_, MAP_FAILED);
  }
  Shared(Shared&& o) noexcept : data_(std::exchange(o.data_, nullptr)), bytes_(o.bytes_) {}
  ~Shared() {
    if (data_) munmap(data_, bytes_);
  }
  std::byte* get() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_;
  size_t bytes_;
};

// DLTensor structs over copies of the tensors.
class Bindings {
 public:
  explicit Bindings(const std::vector<ir::Tensor>& tensors) {
    for (const ir::Tensor& t : tensors) {
      memory_.emplace_back(t.data.size());
      std::copy(t.data.begin(), t.data.end(), memory_.back().get());
      shapes_.push_back(t.type.shape);
    }
    for (size_t i = 0; i < tensors.size(); ++i)
      structs_.push_back({memory_[i].get(), {kDLCPU, 0}, static_cast<int32_t>(shapes_[i].size()), dlpack(tensors[i].type.dtype), shapes_[i].data(), nullptr, 0});
    for (DLTensor& t : structs_) pointers_.push_back(&t);
  }
  const DLTensor* const* get() const { return pointers_.data(); }
  void read(std::vector<ir::Tensor>& into) const {
    for (size_t i = 0; i < into.size(); ++i) std::copy_n(memory_[i].get(), into[i].data.size(), into[i].data.begin());
  }

 private:
  std::vector<Shared> memory_;
  std::vector<ir::Shape> shapes_;
  std::vector<DLTensor> structs_;
  std::vector<const DLTensor*> pointers_;
};

template <class F>
F* symbol(void* library, const char* name) { return reinterpret_cast<F*>(dlsym(library, name)); }

// In the child: "" or what a call of the ABI answered.
std::string run_library(const fs::path& path, const Bindings& weights, size_t weight_count, const Bindings& inputs, const Bindings& outputs) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return dlerror();
  const auto last_error = symbol<decltype(stitch_last_error)>(library, "stitch_last_error");
  stitch_program* program = symbol<decltype(stitch_create)>(library, "stitch_create")(weights.get(), static_cast<int32_t>(weight_count), nullptr);
  if (!program) return std::string("stitch_create: ") + last_error(nullptr);
  const size_t bytes = symbol<decltype(stitch_workspace_bytes)>(library, "stitch_workspace_bytes")(program);
  const Shared workspace(bytes);
  std::fill_n(workspace.get(), bytes, std::byte{0xff});  // NaN in every float format
  if (symbol<decltype(stitch_set_workspace)>(library, "stitch_set_workspace")(program, workspace.get(), bytes) != 0)
    return std::string("stitch_set_workspace: ") + last_error(program);
  if (symbol<decltype(stitch_run)>(library, "stitch_run")(program, inputs.get(), outputs.get(), nullptr) != 0) return std::string("stitch_run: ") + last_error(program);
  symbol<decltype(stitch_destroy)>(library, "stitch_destroy")(program);
  return "";
}

std::vector<ir::Tensor> output_tensors(const ir::Graph& g) {
  std::vector<ir::Tensor> out;
  for (const ir::Output& o : g.outputs) {
    out.push_back(ir::make_tensor(o.name, g.type_of(o.value)));
    std::fill(out.back().data.begin(), out.back().data.end(), std::byte{0xff});  // an element that is not written shows
  }
  return out;
}

}  // namespace

Result<HostProgram> HostProgram::make(const ir::Graph& original, const Road& road) {
  HostProgram p;
  STITCH_TRY(p.graph_, plan::prepare(original));
  STITCH_TRY(const hw::Device device, hw::find_device("h200"));
  plan::PlanOptions planning{device, hw::PrecisionClass::fp32};
  planning.fuse = road.fuse;
  STITCH_TRY(const plan::Plan plan, plan::plan_builtin(p.graph_, road.program, planning));
  code::CoderOptions coding;
  coding.precision = hw::PrecisionClass::fp32;
  coding.generic_only = road.generic_only;
  STITCH_TRY(p.sources_, code::code_builtin(p.graph_, plan, coding));
  STITCH_TRY(TempFolder folder, TempFolder::create("generated"));
  for (const code::SourceFile& f : p.sources_.files) STITCH_CHECK_OK(write_file(folder.path() / f.name, f.text));
  const host::HostProgram build{folder.path(), folder.path() / "program_host.so"};
  STITCH_TRY(const build::ProgramOutcome outcome, host::build_program(build));
  if (!outcome.ok) {
    folder.keep();
    return fail(ErrorKind::candidate, "{} (sources in {})", outcome.summary, folder.path().string());
  }
  p.folder_ = std::make_shared<TempFolder>(std::move(folder));
  p.library_ = build.output;
  return p;
}

Result<std::vector<ir::Tensor>> HostProgram::run(const std::vector<ir::Tensor>& inputs, const std::vector<ir::Tensor>& weights) const {
  std::vector<ir::Tensor> outputs = output_tensors(graph_);
  const Bindings w(weights), in(inputs), out(outputs);
  constexpr size_t kText = 1000;
  const Shared text(kText);
  const pid_t child = fork();
  if (child < 0) return fail(ErrorKind::environment, "fork failed");
  if (child == 0) {
    const std::string problem = run_library(library_, w, weights.size(), in, out);
    std::copy_n(reinterpret_cast<const std::byte*>(problem.c_str()), std::min(problem.size() + 1, kText - 1), text.get());
    _exit(problem.empty() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) {
    folder_->keep();
    return fail(ErrorKind::candidate, "the program died of signal {}; its sources are in {}", WTERMSIG(status), library_.parent_path().string());
  }
  if (WEXITSTATUS(status) != 0) return fail(ErrorKind::candidate, "{}", reinterpret_cast<const char*>(text.get()));
  out.read(outputs);
  return outputs;
}

std::vector<ir::Tensor> random_tensors(const ir::Graph& g, const std::vector<int32_t>& leaves, uint64_t seed, int64_t integers) {
  std::vector<ir::Tensor> out;
  std::mt19937_64 random(seed);
  for (int32_t leaf : leaves) {
    const ir::Node& node = g.nodes[static_cast<size_t>(leaf)];
    ir::Tensor t = ir::make_tensor(node.name, node.type());
    for (int64_t i = 0; i < ir::numel(node.type().shape); ++i) {
      const double u = std::uniform_real_distribution<double>(-2, 2)(random);
      const bool floating = ir::is_floating(node.type().dtype);
      ir::set(t, i, floating ? u : static_cast<double>(random() % static_cast<uint64_t>(ir::is_bool(node.type().dtype) ? 2 : integers)));
    }
    out.push_back(std::move(t));
  }
  return out;
}

namespace {

double unit_of(DType t) {
  switch (t) {
    case DType::f64: return 1e-12;
    case DType::f16: return 2e-3;
    case DType::bf16: return 1.6e-2;
    default: return 1e-5;
  }
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// "" or how output `got` differs from `exact`; `rounded` is the model of unfused execution.
std::string difference(const ir::Tensor& got, const ir::Tensor& exact, const ir::Tensor& rounded) {
  const int64_t n = ir::numel(got.type.shape);
  double scale = 0, noise = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double e = ir::get(exact, i), r = ir::get(rounded, i);
    if (std::isfinite(e)) scale = std::max(scale, std::abs(e));
    if (std::isfinite(e) && std::isfinite(r)) noise = std::max(noise, std::abs(e - r));
  }
  for (int64_t i = 0; i < n; ++i) {
    const double g = ir::get(got, i), e = ir::get(exact, i), r = ir::get(rounded, i);
    if (same(g, e) || same(g, r)) continue;
    const bool floating = ir::is_floating(got.type.dtype);
    const double allowed = floating ? unit_of(got.type.dtype) * (std::abs(e) + 0.1 * scale) + 16 * noise : noise;
    if (std::isfinite(g) && std::isfinite(e) && std::abs(g - e) <= allowed) continue;
    return fmt::format("{} {} element {}: got {}, expected {} (allowed difference {:.3g})", got.name, ir::to_string(got.type), i, g, e, allowed);
  }
  return "";
}

}  // namespace

::testing::AssertionResult agrees_with_interpreter(const ir::Graph& graph, const Road& road, uint64_t seed, int64_t integers) {
  auto program = HostProgram::make(graph, road);
  if (!program) return ::testing::AssertionFailure() << program.error().message << "\n" << program.error().detail;
  const std::vector<ir::Tensor> inputs = random_tensors(graph, graph.inputs(), seed, integers), weights = random_tensors(graph, graph.weights(), seed + 1, integers);
  auto got = program->run(inputs, weights);
  if (!got) return ::testing::AssertionFailure() << got.error().message;
  std::vector<interp::Value> in, w;
  for (const ir::Tensor& t : inputs) in.push_back(interp::from_tensor(t));
  for (const ir::Tensor& t : weights) w.push_back(interp::from_tensor(t));
  const auto exact = interp::run(graph, in, w);
  if (!exact) return ::testing::AssertionFailure() << exact.error().message;
  interp::Options rounding;
  rounding.round_to_dtype = true;
  const auto rounded = interp::run(graph, in, w, rounding);
  if (!rounded) return ::testing::AssertionFailure() << rounded.error().message;
  std::string problems;
  if (std::getenv("STITCH_TEST_KEEP")) fmt::print("sources: {}\n", program->keep().string());
  for (size_t i = 0; i < got->size(); ++i) {
    const std::string& name = graph.outputs[i].name;
    const std::string d = difference((*got)[i], interp::to_f64_tensor((*exact)[i], name), interp::to_f64_tensor((*rounded)[i], name));
    if (!d.empty()) problems += d + "\n";
  }
  return problems.empty() ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << problems;
}

namespace {

using ir::GraphBuilder;
using ir::ValueRef;

// All samples of the op table as outputs of one graph. `outputs` gets the sample of each output.
ir::Graph sample_graph() {
  std::string text = ir::test::kLeaves, results;
  int node = ir::test::kLeafCount;
  for (const std::string& sample : ir::test::all_samples()) {
    text += fmt::format("%{}: {}\n", node, sample);
    const bool tuple = sample.front() == '(';
    const auto count = tuple ? 1 + std::count(sample.begin(), sample.begin() + static_cast<std::ptrdiff_t>(sample.find(") =")), ' ') : 1;
    for (int k = 0; k < count; ++k) {
      results += fmt::format("{}%{}{} {{name=\"{}_{}_{}\"}}", results.empty() ? "" : ", ", node, tuple ? fmt::format(".{}", k) : "", ir::test::op_of(sample), node, k);
    }
    ++node;
  }
  auto g = ir::parse(text + "return " + results + "\n");
  EXPECT_TRUE(g.has_value()) << (g ? "" : g.error().message);
  return g.value_or(ir::Graph{});
}

TEST(GeneratedProgram, EveryOpAgreesWithTheInterpreter) { EXPECT_TRUE(agrees_with_interpreter(sample_graph(), {}, 1)); }
TEST(GeneratedProgram, EveryOpAgreesNodeByNodeWithGenericCode) { EXPECT_TRUE(agrees_with_interpreter(sample_graph(), {false, true}, 2)); }
// torch.sort(x).values, torch.cummax(x).indices: of an op with several results only one may be read.
TEST(GeneratedProgram, OneResultOfSeveralAgrees) {
  std::string text = ir::test::kLeaves, results;
  int node = ir::test::kLeafCount;
  for (const std::string& sample : ir::test::all_samples()) {
    if (sample.front() != '(') continue;
    const auto count = 1 + std::count(sample.begin(), sample.begin() + static_cast<std::ptrdiff_t>(sample.find(") =")), ' ');
    for (int k = 0; k < count; ++k, ++node) {
      text += fmt::format("%{}: {}\n", node, sample);
      results += fmt::format("{}%{}.{} {{name=\"out{}\"}}", results.empty() ? "" : ", ", node, k, node);
    }
  }
  const auto g = ir::parse(text + "return " + results + "\n");
  ASSERT_TRUE(g) << g.error().message;
  EXPECT_TRUE(agrees_with_interpreter(*g, {}, 4));
}
TEST(GeneratedProgram, AttentionWithWideHeadsAgrees) {
  ir::GraphBuilder g;
  const auto input = [&](const char* name, int64_t rows, int64_t width) { return g.input(name, {DType::f32, {2, 2, rows, width}}); };
  g.output("out", g.op("scaled_dot_product_attention", {{"q", input("q", 5, 300)}, {"k", input("k", 7, 300)}, {"v", input("v", 7, 20)}, {"scale", 0.01}}));
  EXPECT_TRUE(agrees_with_interpreter(g.graph(), {}, 3));
}

}  // namespace
}  // namespace stitch::testing
