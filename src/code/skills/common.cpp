#include "code/skills/common.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "code/literals.h"

namespace stitch::code {

bool needs_wide_index(const TaskContext& context) {
  constexpr int64_t kLimit = (int64_t{1} << 31) - (int64_t{1} << 22);  // room for the last block and for padding offsets
  const auto large = [&](ir::ValueRef v) { return ir::numel(context.graph.type_of(v).shape) >= kLimit; };
  if (std::any_of(context.task.inputs.begin(), context.task.inputs.end(), large)) return true;
  for (int32_t n : context.task.nodes)
    for (int32_t k = 0; k < static_cast<int32_t>(context.graph.nodes[static_cast<size_t>(n)].types.size()); ++k)
      if (large({n, k})) return true;
  return false;
}

void KernelParams::input(const TaskContext& context, ir::ValueRef v) {
  add(fmt::format("const {}* __restrict__ {}", cpp_type(context.graph.type_of(v).dtype), context.parameter(v)), context.parameter(v));
}
void KernelParams::output(const TaskContext& context, ir::ValueRef v) {
  add(fmt::format("{}* __restrict__ {}", cpp_type(context.graph.type_of(v).dtype), context.parameter(v)), context.parameter(v));
}
std::string KernelParams::declarations() const {
  std::string out;
  size_t column = 0;
  for (const auto& [declaration, argument] : items_) {
    if (!out.empty()) {
      out += ',';
      if (column + declaration.size() > 100) {
        out += "\n    ";
        column = 0;
      } else {
        out += ' ';
      }
    }
    out += declaration;
    column += declaration.size() + 2;
  }
  return out;
}
std::string KernelParams::arguments() const {
  std::string out;
  for (const auto& [declaration, argument] : items_) out += (out.empty() ? "" : ", ") + argument;
  return out;
}

namespace {

// "// From model.py:12, model.py:14; modules layers.0.mlp.up, layers.0.mlp.act": where the task's nodes stand in the PyTorch program.
std::string origin_comment(const TaskContext& context) {
  const auto collect = [&](std::string ir::Node::*member) {
    constexpr size_t kMost = 5;
    std::vector<std::string> found;
    for (int32_t n : context.task.nodes) {
      const std::string& text = context.graph.nodes[static_cast<size_t>(n)].*member;
      if (!text.empty() && std::find(found.begin(), found.end(), text) == found.end()) found.push_back(text);
    }
    const size_t rest = found.size() > kMost ? found.size() - kMost : 0;
    found.resize(found.size() - rest);
    return fmt::format("{}{}", fmt::join(found, ", "), rest > 0 ? fmt::format(" and {} more", rest) : "");
  };
  const std::string places = collect(&ir::Node::source), modules = collect(&ir::Node::scope);
  if (places.empty() && modules.empty()) return "";
  return fmt::format("// {}\n", comment_text(fmt::format("From {}{}{}.", places, places.empty() || modules.empty() ? "" : "; ", modules.empty() ? "" : "module " + modules), 400));
}

}  // namespace

std::string task_comment(const TaskContext& context, std::string_view skill) {
  std::string out;
  for (size_t at = 0; at < context.task.why.size();) {  // a sentence a line
    const size_t end = std::min(context.task.why.find(". ", at), context.task.why.size() - 1) + 1;
    out += "// " + comment_text(std::string_view(context.task.why).substr(at, end - at)) + "\n";
    at = end + 1;
  }
  out += origin_comment(context);
  const auto list = [&](const std::vector<ir::ValueRef>& values) {
    std::string text;
    for (ir::ValueRef v : values)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", context.parameter(v), ir::to_string(context.graph.type_of(v)));
    return text;
  };
  out += fmt::format("// {}{}-> {} (skill: {})\n", list(context.task.inputs), context.task.inputs.empty() ? "" : " ",
                     list(context.task.outputs), skill);
  return out;
}

std::string stored(Emitter& e, const Val& value, ir::DType type) {
  const Val v = e.convert(value, type);
  if (type == ir::DType::f16 || type == ir::DType::bf16) return fmt::format("narrow<{}>({})", cpp_type(type), v.text);
  return v.text;
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

void set_up(Emitter& e, const TaskContext& context) {
  for (ir::ValueRef v : context.task.inputs) {
    e.bind(v, context.parameter(v));
    e.reserve(context.parameter(v));
  }
  for (ir::ValueRef v : context.task.outputs) e.reserve(context.parameter(v));
  for (int32_t n : context.task.nodes) e.allow(n);
}

}  // namespace stitch::code
