// Identifiers and types of generated code.
#include <algorithm>
#include <cctype>
#include <map>
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
      "words", "slot", "first", "last", "value", "index", "threads", "params",
      "alignas", "alignof", "char8_t", "char16_t", "char32_t", "wchar_t", "const_cast", "dynamic_cast", "static_cast", "reinterpret_cast",
      "consteval", "constinit", "co_await", "co_return", "co_yield", "noexcept", "static_assert", "thread_local", "and_eq", "bitand", "bitor", "compl",
      "not_eq", "or_eq", "xor_eq", "catch",
      // Names of include/stitch and kernels/ that generated code calls, and variables of skills.
      "Failure", "Vendor", "Store", "Placed", "Vec", "Half", "Bfloat", "Sum", "Product", "Maximum", "Minimum", "Deviations", "Moments", "ArgExtreme",
      "LogSum", "LogAddExp", "RunningExtremum", "Span", "NoMask", "Best", "Gemm", "Convolution", "Index", "Unsigned", "Value", "Visit", "Entry",
      "all", "any", "clamp_index", "wrap_index", "reflect_index", "warp_reduce", "block_reduce", "load", "store", "load_vec", "store_vec", "gather", "gemm",
      "convolution", "alignment_of", "add_scaled", "from_bits", "to_bits", "pointer", "type", "failure", "mean", "sum", "scale", "top", "base", "rows", "total",
      "best", "memory", "f", "g", "p",
      // CUDA and the C library, as functions, types and macros.
      "blockIdx", "threadIdx", "blockDim", "gridDim", "warpSize", "dim3", "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t",
      "uint64_t", "size_t", "ptrdiff_t", "nullptr_t", "float2", "float4", "half", "half2", "errno", "assert", "alloca", "offsetof", "linux", "unix", "major",
      "minor", "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "erf", "erfc", "exp", "exp2",
      "expm1", "fabs", "floor", "fma", "fmax", "fmin", "fmod", "hypot", "isfinite", "isinf", "isnan", "lgamma", "log", "log10", "log1p", "log2", "max", "min",
      "nearbyint", "pow", "rint", "round", "rsqrt", "signbit", "sin", "sinh", "sqrt", "tan", "tanh", "tgamma", "trunc"};
  if (words.count(s)) return true;
  if (s.ends_with("_vec") || s.starts_with("cuda") || s.starts_with("cublas") || s.starts_with("cudnn")) return true;
  // The C library's functions of floats: expf, fmaxf.
  if (s.ends_with('f') && words.count(s.substr(0, s.size() - 1))) return true;
  if (s.starts_with("at") && std::all_of(s.begin() + 2, s.end(), [](unsigned char c) { return std::isdigit(c); })) return true;
  // v7, i3, k, acc_2: temporaries of the expression generator.
  if (s.rfind("acc", 0) == 0 || s.rfind("tile", 0) == 0) return true;
  if (std::string("ijkqrctnvmes").find(s[0]) == std::string::npos) return false;
  return std::all_of(s.begin() + 1, s.end(), [](unsigned char c) { return std::isdigit(c) || c == '_'; });
}

// The end of a long name, such as a module path, says more than its beginning. Runs of '_' become one: two belong to the implementation.
std::string identifier(const std::string& name) {
  constexpr size_t kLongest = 64;
  std::string out;
  for (unsigned char c : name) {
    const char use = c < 0x80 && std::isalnum(c) ? static_cast<char>(c) : '_';
    if (use != '_' || (!out.empty() && out.back() != '_')) out += use;
  }
  if (out.size() > kLongest) out.erase(0, out.size() - kLongest);
  if (out.starts_with('_')) out.erase(0, 1);
  if (out.empty()) out = "p";
  if (std::isdigit(static_cast<unsigned char>(out[0]))) out = "p_" + out;
  // An all-capital name could be a macro (NAN, INFINITY, BLOCK).
  const bool capital = std::none_of(out.begin(), out.end(), [](unsigned char c) { return std::islower(c); });
  if (!capital && !is_reserved(out)) return out;
  return out + (out.ends_with('_') ? "in" : "_in");
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
  std::vector<ValueRef> values = task.inputs;
  for (const ValueRef o : task.outputs)
    if (std::find(values.begin(), values.end(), o) == values.end()) values.push_back(o);
  std::map<std::string, int> uses;
  for (const ValueRef o : values) ++uses[base_name(graph, o)];
  // Names that several values want get their node's number, and more until nobody else has the result.
  const auto name_of = [&](ValueRef o, std::set<std::string>& taken) {
    std::string name = base_name(graph, o);
    if (const auto use = uses.find(name); use != uses.end() && use->second > 1) {
      name += fmt::format("_n{}", o.node);
      while (uses.count(name) || taken.count(name)) name += fmt::format("_{}", o.output);
    }
    taken.insert(name);
    return name;
  };
  std::set<std::string> taken;
  for (const ValueRef o : values)
    if (std::string name = name_of(o, taken); o == v) return name;
  return name_of(v, taken);
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
