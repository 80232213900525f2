// stitch_interpret: runs programs on the CPU in fp64, with no torch and no GPU.
//   stitch_interpret bundle DIR --case 000 -o out.safetensors     the outputs of one case of a .stitch bundle
//   stitch_interpret batch PROGRAMS TENSORS -o out.safetensors    many small programs in one file (tests)
#include <CLI/CLI.hpp>
#include <cstdio>
#include <sstream>

#include "base/files.h"
#include "interp/interpreter.h"
#include "ir/bundle.h"
#include "ir/safetensors.h"

namespace stitch {
namespace {

using interp::Value;

std::vector<Value> values_of(const std::vector<ir::Tensor>& tensors) {
  std::vector<Value> out;
  for (const ir::Tensor& t : tensors) out.push_back(interp::from_tensor(t));
  return out;
}

Status run_bundle(const std::string& folder, const std::string& name, const std::string& output, const interp::Options& options) {
  STITCH_TRY(const ir::Bundle bundle, ir::read_bundle(folder));
  STITCH_TRY(const auto weights, ir::read_weights(bundle));
  STITCH_TRY(const ir::Case one, ir::read_case(bundle, name));
  STITCH_TRY(const auto values, interp::run(bundle.graph, values_of(one.inputs), values_of(weights), options));
  std::vector<ir::Tensor> tensors;
  for (size_t i = 0; i < values.size(); ++i) tensors.push_back(interp::to_f64_tensor(values[i], "expected." + bundle.graph.outputs[i].name));
  return ir::write_safetensors(output, tensors);
}

Result<std::vector<Value>> read_leaves(const ir::SafetensorsFile& file, const ir::Graph& g, const std::vector<int32_t>& nodes, const std::string& program) {
  std::vector<Value> out;
  for (int32_t n : nodes) {
    const std::string name = program + "/" + g.nodes[static_cast<size_t>(n)].name;
    const auto* entry = file.find(name);
    if (!entry) return fail(ErrorKind::bad_input, "The tensor file has no \"{}\".", name);
    STITCH_TRY(const ir::Tensor t, file.read(*entry));
    out.push_back(interp::from_tensor(t));
  }
  return out;
}

Status run_program(const std::string& name, const std::string& text, const ir::SafetensorsFile& file, const interp::Options& options, std::vector<ir::Tensor>& results) {
  STITCH_TRY(const ir::Graph g, ir::parse(text));
  STITCH_CHECK_OK(ir::validate(g));
  STITCH_TRY(const auto inputs, read_leaves(file, g, g.inputs(), name));
  STITCH_TRY(const auto weights, read_leaves(file, g, g.weights(), name));
  STITCH_TRY(const auto values, interp::run(g, inputs, weights, options));
  for (size_t i = 0; i < values.size(); ++i) results.push_back(interp::to_f64_tensor(values[i], name + "/" + g.outputs[i].name));
  return {};
}

// A program starts with a line "# program NAME"; its inputs and weights are the tensors "NAME/<name>" and so are its outputs.
// A program that fails is reported on stdout as "NAME: message" and does not stop the others.
Status run_batch(const std::string& programs, const std::string& tensors, const std::string& output, const interp::Options& options) {
  STITCH_TRY(const std::string text, read_file(programs));
  STITCH_TRY(const auto file, ir::SafetensorsFile::open(tensors));
  std::vector<ir::Tensor> results;
  constexpr std::string_view mark = "# program ";
  for (size_t at = text.find(mark); at != text.npos;) {
    const size_t line = std::min(text.find('\n', at), text.size()), next = text.find(mark, line);
    const std::string name = text.substr(at + mark.size(), line - at - mark.size());
    if (const auto status = run_program(name, text.substr(line, next == text.npos ? next : next - line), file, options, results); !status)
      fmt::print("{}: {}\n", name, status.error().message);
    at = next;
  }
  return ir::write_safetensors(output, results);
}

int finish(const Status& status) {
  if (status) return 0;
  fmt::print(stderr, "{}\n", status.error().message);
  return 1;
}

}  // namespace
}  // namespace stitch

int main(int argc, char** argv) {
  CLI::App app("Runs programs on the CPU in fp64.");
  app.require_subcommand(1);
  std::string first, second, output, name = "000";
  stitch::interp::Options options;
  auto* bundle = app.add_subcommand("bundle", "Outputs of one case of a .stitch bundle");
  bundle->add_option("bundle", first, "The .stitch folder")->required();
  bundle->add_option("--case", name, "Name of the case")->capture_default_str();
  auto* batch = app.add_subcommand("batch", "Many small programs");
  batch->add_option("programs", first, "Programs in text form, each after a line \"# program NAME\"")->required();
  batch->add_option("tensors", second, "Their inputs and weights, named NAME/<tensor> (safetensors)")->required();
  for (auto* s : {bundle, batch}) {
    s->add_option("-o,--output", output, "safetensors file; floats are f64, integers i64")->required();
    s->add_flag("--round", options.round_to_dtype, "Round every node's result to its dtype");
  }
  CLI11_PARSE(app, argc, argv);
  return stitch::finish(bundle->parsed() ? stitch::run_bundle(first, name, output, options) : stitch::run_batch(first, second, output, options));
}
