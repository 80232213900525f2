// Identifiers and types of generated code.
#include <algorithm>
#include <cctype>
#include <set>
#include <string>

#include "code/skill.h"

namespace stitch::code {
namespace {

using ir::DType;
using ir::ValueRef;

// Words that a parameter must not be called: C++ keywords and the names that generated code uses itself.
bool is_reserved(const std::string& s) {
  static const std::set<std::string> words = {
      "auto", "bool", "break", "case", "char", "class", "const", "continue", "default", "delete", "do", "double", "else",
      "enum", "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if", "inline", "int", "long",
      "mutable", "namespace", "new", "operator", "private", "protected", "public", "register", "return", "short",
      "signed", "sizeof", "static", "struct", "switch", "template", "this", "throw", "true", "try", "typedef", "typeid",
      "typename", "union", "unsigned", "using", "virtual", "void", "volatile", "while", "and", "or", "not", "xor",
      "concept", "requires", "constexpr", "decltype", "nullptr", "asm", "scratch", "vendor", "stream", "stitch", "op",
      "row", "lane", "warp", "active", "std", "column", "split", "grid", "block", "program", "narrow", "widen",
      "words", "slot", "first", "last", "value", "index", "threads", "params"};
  if (words.count(s)) return true;
  // v7, i3, k, acc_2: temporaries of the expression generator.
  if (s.rfind("acc", 0) == 0 || s.rfind("tile", 0) == 0) return true;
  if (std::string("ijkqrctnvmes").find(s[0]) == std::string::npos) return false;
  return std::all_of(s.begin() + 1, s.end(), [](unsigned char c) { return std::isdigit(c) || c == '_'; });
}

std::string identifier(const std::string& name) {
  std::string out;
  for (unsigned char c : name) out += std::isalnum(c) ? static_cast<char>(c) : '_';
  if (out.empty() || std::isdigit(static_cast<unsigned char>(out[0]))) out = "p_" + out;
  while (out.size() > 1 && out[0] == '_') out.erase(0, 1);  // leading underscores belong to the implementation
  if (out == "_") out = "p";
  // An all-capital name could be a macro (NAN, INFINITY, BLOCK).
  if (std::none_of(out.begin(), out.end(), [](unsigned char c) { return std::islower(c); })) out += "_in";
  return is_reserved(out) ? out + "_in" : out;
}

std::string base_name(const ir::Graph& graph, ValueRef v) {
  const ir::Node& node = graph.at(v);
  const bool leaf = node.op_name() == "input" || node.op_name() == "weight";
  std::string name = leaf && !node.name.empty() ? identifier(node.name) : fmt::format("{}_{}", identifier(std::string(node.op_name())), v.node);
  if (node.types.size() > 1) name += fmt::format("_{}", v.output);
  return name;
}

}  // namespace

std::string TaskContext::parameter(ValueRef v) const {
  const std::string name = base_name(graph, v);
  const auto collides = [&](const std::vector<ValueRef>& values) {
    return std::any_of(values.begin(), values.end(), [&](ValueRef o) { return o != v && base_name(graph, o) == name; });
  };
  return collides(task.inputs) || collides(task.outputs) ? fmt::format("{}_n{}", name, v.node) : name;
}

std::string TaskContext::signature() const {
  const std::string head = fmt::format("stitch::Failure {}(", task.name);
  std::vector<std::string> parameters;
  for (ValueRef v : task.inputs) parameters.push_back(fmt::format("const {}* {}", cpp_type(graph.type_of(v).dtype), parameter(v)));
  for (ValueRef v : task.outputs) parameters.push_back(fmt::format("{}* {}", cpp_type(graph.type_of(v).dtype), parameter(v)));
  parameters.insert(parameters.end(), {"void* scratch", "stitch::Vendor& vendor", "cudaStream_t stream"});
  // Wrapped at 118 columns, continuation lines under the first parameter.
  std::string out = head;
  size_t column = head.size();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::string piece = parameters[i] + (i + 1 < parameters.size() ? "," : ")");
    if (i > 0 && column + 1 + piece.size() > 118) {
      const size_t indent = head.size() < 60 ? head.size() : 4;
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (i > 0) {
      out += ' ';
      ++column;
    }
    out += piece;
    column += piece.size();
  }
  return out;
}

std::string_view cpp_type(DType t) {
  switch (t) {
    case DType::f64: return "double";
    case DType::f32: return "float";
    case DType::f16: return "__half";
    case DType::bf16: return "__nv_bfloat16";
    case DType::i64: return "int64_t";
    case DType::i32: return "int32_t";
    case DType::i16: return "int16_t";
    case DType::i8: return "int8_t";
    case DType::u8: return "uint8_t";
    case DType::b8: return "bool";
  }
  return "float";
}

std::string_view compute_type(DType t) { return t == DType::f16 || t == DType::bf16 ? "float" : cpp_type(t); }

}  // namespace stitch::code
