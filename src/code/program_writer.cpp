#include "code/program_writer.h"

#include <algorithm>

#include "base/json_full.h"
#include "base/json_util.h"
#include "code/literals.h"
#include "code/skill.h"

namespace stitch::code {
namespace {

using ir::Graph;
using ir::ValueRef;

// DLPack type code and bits (https://dmlc.github.io/dlpack/latest/c_api.html).
std::pair<const char*, int> dlpack_type(ir::DType d) {
  const int bits = static_cast<int>(8 * ir::size_of(d));
  if (d == ir::DType::bf16) return {"kDLBfloat", bits};
  if (ir::is_floating(d)) return {"kDLFloat", bits};
  if (d == ir::DType::u8) return {"kDLUInt", bits};
  if (d == ir::DType::b8) return {"STITCH_DL_BOOL", bits};
  return {"kDLInt", bits};
}

// A vendor library that a program may use: the task's flag, the line of program.cpp that includes it, and its name for the linker.
struct VendorLibrary {
  bool TaskSource::*flag;
  const char *define, *name;
};
constexpr VendorLibrary kVendorLibraries[] = {{&TaskSource::uses_cublaslt, "#define STITCH_USE_CUBLASLT 1", "cublasLt"},
                                              {&TaskSource::uses_cudnn, "#define STITCH_USE_CUDNN 1", "cudnn"}};

struct Named {
  std::string name;
  ir::TensorType type;
};

std::string spec_table(const char* table, const std::vector<Named>& tensors) {
  if (tensors.empty()) return fmt::format("constexpr std::nullptr_t {} = nullptr;\n", table);
  std::string out = fmt::format("constexpr TensorSpec {}[] = {{\n", table);
  for (const Named& t : tensors) {
    const auto [code, bits] = dlpack_type(t.type.dtype);
    out += fmt::format("    {{{}, {}, {}, {}, {{{}}}}},\n", c_string(t.name), code, bits, t.type.shape.size(), fmt::join(t.type.shape, ", "));
  }
  return out + "};\n";
}

std::vector<Named> leaves(const Graph& g, const std::vector<int32_t>& nodes) {
  std::vector<Named> out;
  for (int32_t n : nodes) out.push_back({g.nodes[static_cast<size_t>(n)].name, g.nodes[static_cast<size_t>(n)].type()});
  return out;
}
std::vector<Named> outputs(const Graph& g) {
  std::vector<Named> out;
  for (const ir::Output& o : g.outputs) out.push_back({o.name, g.type_of(o.value)});
  return out;
}

Json tensors_json(const std::vector<Named>& tensors) {
  Json out = Json::array();
  for (const Named& t : tensors) out.push_back({{"name", t.name}, {"dtype", std::string(ir::name_of(t.type.dtype))}, {"shape", t.type.shape}});
  return out;
}

std::string manifest(const Graph& g, const plan::Plan& plan, const CoderOptions& options, size_t workspace) {
  Json outs = tensors_json(outputs(g));
  for (size_t i = 0; i < g.outputs.size(); ++i) outs[i]["mutates"] = g.outputs[i].kind == ir::Output::Kind::user ? Json() : Json(g.outputs[i].target);
  Json tasks = Json::array();
  for (const plan::Task& t : plan.tasks) {
    if (t.kind == plan::TaskKind::alias) continue;
    tasks.push_back({{"id", t.id}, {"name", t.name}, {"nodes", t.nodes}});
  }
  const Json j{{"name", plan.program},
               {"arch", options.arch},
               {"precision", std::string(hw::name_of(options.precision))},
               {"inputs", tensors_json(leaves(g, g.inputs()))},
               {"weights", tensors_json(leaves(g, g.weights()))},
               {"outputs", outs},
               {"tasks", tasks},
               {"workspace_bytes", workspace}};
  // The target is the one the file is compiled for, so a macro stands for it.
  std::string out = fmt::format("constexpr const char* kManifest =\n    {}\n    STITCH_TARGET_NAME\n    {}\n", c_string("{\"target\":\""), c_string("\","));
  const std::string rest = dump(j, -1).substr(1);
  for (size_t i = 0; i < rest.size(); i += 100) out += fmt::format("    {}\n", c_string(rest.substr(i, 100)));
  return out + "    ;\n";
}

std::string place_text(const Graph& g, ValueRef v, const Place& p, bool written) {
  const std::string_view type = cpp_type(g.type_of(v).dtype);
  switch (p.kind) {
    case Place::Kind::input: return fmt::format("m.input<{}>({})", type, p.index);
    case Place::Kind::weight: return fmt::format("m.weight<{}>({})", type, p.index);
    case Place::Kind::output: return fmt::format("m.output<{}>({})", type, p.index);
    case Place::Kind::workspace: return fmt::format("m.at<{}>({})", type, p.offset);
  }
  (void)written;
  return "";
}

std::string describe(const Graph& g, ValueRef v) {
  const ir::Node& n = g.at(v);
  const std::string name = n.name.empty() ? fmt::format("%{}", v.node) : comment_text(n.name);
  return fmt::format("{} {}", name, ir::to_string(g.type_of(v)));
}

std::string task_case(const Graph& g, const plan::Task& t, int index, const TaskSource& source, const MemoryPlan& memory, size_t step) {
  std::string out = fmt::format("    case {}:\n", index);
  std::vector<std::string> arguments;
  for (ValueRef v : t.inputs) arguments.push_back(fmt::format("{},  // {}", place_text(g, v, memory.places.at(v), false), describe(g, v)));
  for (ValueRef v : t.outputs) arguments.push_back(fmt::format("{},  // -> {}", place_text(g, v, memory.places.at(v), true), describe(g, v)));
  arguments.push_back(source.scratch_bytes > 0 ? fmt::format("m.at<void>({}),  // scratch, {} bytes", memory.scratch_offsets[step], source.scratch_bytes) : "nullptr,  // no scratch");
  out += fmt::format("      return {}(\n", t.name);
  for (const std::string& a : arguments) out += fmt::format("          {}\n", a);
  return out + "          vendor, stream);\n";
}

std::string finish_function(const Graph& g, const MemoryPlan& memory) {
  std::string out = "// Outputs that are copies of an input, a weight or another output.\nFailure finish([[maybe_unused]] const Memory& m, [[maybe_unused]] cudaStream_t stream) {\n";
  for (const OutputCopy& c : memory.copies) {
    if (c.bytes == 0) continue;
    const ValueRef v = g.outputs[c.output].value;
    out += fmt::format("  STITCH_TRY_CUDA(cudaMemcpyAsync(m.output<void>({}), {}, {}, cudaMemcpyDeviceToDevice, stream));\n", c.output, place_text(g, v, c.from, false), c.bytes);
  }
  return out + "  return nullptr;\n}\n";
}

}  // namespace

std::string write_task_header(const Graph& g, const plan::Plan& plan, hw::PrecisionClass precision) {
  std::string out =
      "#pragma once\n// Launchers of the tasks, defined in kernels.cu. Inputs, outputs, scratch memory, library handles, stream.\n\n#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n\n"
      "#include \"stitch/runtime.h\"\n\nnamespace program {\n\n";
  for (const plan::Task& t : plan.tasks)
    if (t.kind != plan::TaskKind::alias) out += TaskContext{g, t, precision}.signature() + ";\n";
  return out + "\n}  // namespace program\n";
}

std::vector<std::string> link_libs_of(std::string_view program_cpp) {
  std::vector<std::string> out;
  for (const VendorLibrary& l : kVendorLibraries)
    if (program_cpp.find(fmt::format("\n{}\n", l.define)) != program_cpp.npos) out.emplace_back(l.name);
  return out;
}

std::string write_program(const Graph& g, const plan::Plan& plan, const std::vector<TaskSource>& sources, const MemoryPlan& memory, const CoderOptions& options) {
  const auto any = [&](bool TaskSource::*flag) { return std::any_of(sources.begin(), sources.end(), [&](const TaskSource& s) { return s.*flag; }); };
  std::string out = fmt::format(
      "// {}: host side of the program. Written by stitchcuda; the tasks themselves are in kernels.cu.\n"
      "// {} tasks, workspace {} bytes. The candidate ABI is in stitch/abi.h.\n",
      comment_text(plan.program), sources.size(), memory.workspace_bytes);
  for (const VendorLibrary& l : kVendorLibraries)
    if (any(l.flag)) out += fmt::format("{}\n", l.define);
  out += "#include \"stitch/program.h\"\n#include \"tasks.h\"\n\n#ifdef STITCH_HOST_EMULATOR\n#define STITCH_TARGET_NAME \"host\"\n#else\n#define STITCH_TARGET_NAME \"cuda\"\n#endif\n\nnamespace program {\n\nusing stitch::Failure;\nusing stitch::Vendor;\n\n";
  out += manifest(g, plan, options, memory.workspace_bytes) + "\n";
  out += spec_table("kInputs", leaves(g, g.inputs())) + spec_table("kWeights", leaves(g, g.weights())) + spec_table("kOutputs", outputs(g));
  out += fmt::format("constexpr int kTaskCount = {};\nconstexpr size_t kWorkspaceBytes = {};\nconstexpr bool kUseGraph = {};  // record once, replay with the same pointers\n\n",
                     sources.size(), memory.workspace_bytes, plan.host.cuda_graph ? "true" : "false");
  out += "// Launches one task: where its tensors are in this run. m.at<T>(n) is n bytes into the workspace.\n"
         "Failure run_task(int task, [[maybe_unused]] const Memory& m, [[maybe_unused]] Vendor& vendor, [[maybe_unused]] cudaStream_t stream) {\n  switch (task) {\n";
  int index = 0;
  for (size_t step = 0; step < plan.tasks.size(); ++step) {
    if (plan.tasks[step].kind == plan::TaskKind::alias) continue;
    out += task_case(g, plan.tasks[step], index, sources[static_cast<size_t>(index)], memory, step);
    ++index;
  }
  out += "    default:\n      return \"there is no such task\";\n  }\n}\n\n";
  out += finish_function(g, memory);
  return out + "\n}  // namespace program\n\n#include \"stitch/program_impl.h\"\n";
}

}  // namespace stitch::code
