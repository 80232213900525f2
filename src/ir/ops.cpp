#include "ir/ops.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>

namespace stitch::ir {
namespace {

using enum OpClass;

// One row of the table. Parameters are written "name:kind" or "name:kind=default", separated by spaces:
//   T tensor, T? tensor or None, V operand (tensor or number), V? operand or None, T* list of tensors,
//   i int, f float, b bool, s text, d dtype, i* list of ints; a trailing ? allows None (its default).
// Semantics of every row are in docs/ir.md.
struct Row {
  const char* name;
  OpClass cls;
  const char* params;
  int max_results = 1;
};

constexpr Row kRows[] = {
    // sources
    {"input", source, ""},
    {"weight", source, ""},
    {"full", source, "size:i* value:f"},
    {"arange", source, "start:f end:f step:f=1"},
    {"eye", source, "rows:i cols:i"},
    // pointwise, one operand
    {"neg", pointwise, "x:V"}, {"abs", pointwise, "x:V"}, {"sign", pointwise, "x:V"}, {"exp", pointwise, "x:V"},
    {"exp2", pointwise, "x:V"}, {"expm1", pointwise, "x:V"}, {"log", pointwise, "x:V"}, {"log2", pointwise, "x:V"},
    {"log10", pointwise, "x:V"}, {"log1p", pointwise, "x:V"}, {"sqrt", pointwise, "x:V"}, {"rsqrt", pointwise, "x:V"},
    {"reciprocal", pointwise, "x:V"}, {"sin", pointwise, "x:V"}, {"cos", pointwise, "x:V"}, {"tan", pointwise, "x:V"},
    {"asin", pointwise, "x:V"}, {"acos", pointwise, "x:V"}, {"atan", pointwise, "x:V"}, {"sinh", pointwise, "x:V"},
    {"cosh", pointwise, "x:V"}, {"tanh", pointwise, "x:V"}, {"asinh", pointwise, "x:V"}, {"acosh", pointwise, "x:V"},
    {"atanh", pointwise, "x:V"}, {"erf", pointwise, "x:V"}, {"erfc", pointwise, "x:V"}, {"sigmoid", pointwise, "x:V"},
    {"log_sigmoid", pointwise, "x:V"}, {"relu", pointwise, "x:V"}, {"gelu", pointwise, "x:V approximate:s=\"none\""},
    {"silu", pointwise, "x:V"}, {"mish", pointwise, "x:V"}, {"hardswish", pointwise, "x:V"},
    {"hardsigmoid", pointwise, "x:V"}, {"elu", pointwise, "x:V alpha:f=1 scale:f=1 input_scale:f=1"},
    {"leaky_relu", pointwise, "x:V negative_slope:f=0.01"}, {"softplus", pointwise, "x:V beta:f=1 threshold:f=20"},
    {"hardshrink", pointwise, "x:V lambd:f=0.5"}, {"softshrink", pointwise, "x:V lambd:f=0.5"},
    {"threshold", pointwise, "x:V threshold:f value:f"}, {"floor", pointwise, "x:V"}, {"ceil", pointwise, "x:V"},
    {"round", pointwise, "x:V decimals:i=0"}, {"trunc", pointwise, "x:V"}, {"frac", pointwise, "x:V"},
    {"logical_not", pointwise, "x:V"}, {"bitwise_not", pointwise, "x:V"}, {"isnan", pointwise, "x:V"},
    {"isinf", pointwise, "x:V"}, {"nan_to_num", pointwise, "x:V nan:f? posinf:f? neginf:f?"},
    {"cast", pointwise, "x:V"},
    // pointwise, two and three operands
    {"add", pointwise, "x:V y:V alpha:f=1"}, {"sub", pointwise, "x:V y:V alpha:f=1"}, {"mul", pointwise, "x:V y:V"},
    {"div", pointwise, "x:V y:V rounding_mode:s?"}, {"pow", pointwise, "x:V y:V"}, {"maximum", pointwise, "x:V y:V"},
    {"minimum", pointwise, "x:V y:V"}, {"fmod", pointwise, "x:V y:V"}, {"remainder", pointwise, "x:V y:V"},
    {"atan2", pointwise, "x:V y:V"}, {"hypot", pointwise, "x:V y:V"}, {"logaddexp", pointwise, "x:V y:V"},
    {"xlogy", pointwise, "x:V y:V"}, {"eq", pointwise, "x:V y:V"}, {"ne", pointwise, "x:V y:V"},
    {"lt", pointwise, "x:V y:V"}, {"le", pointwise, "x:V y:V"}, {"gt", pointwise, "x:V y:V"},
    {"ge", pointwise, "x:V y:V"}, {"logical_and", pointwise, "x:V y:V"}, {"logical_or", pointwise, "x:V y:V"},
    {"logical_xor", pointwise, "x:V y:V"}, {"bitwise_and", pointwise, "x:V y:V"}, {"bitwise_or", pointwise, "x:V y:V"},
    {"bitwise_xor", pointwise, "x:V y:V"}, {"bitwise_left_shift", pointwise, "x:V y:V"},
    {"bitwise_right_shift", pointwise, "x:V y:V"}, {"where", pointwise, "condition:V x:V y:V"},
    {"clamp", pointwise, "x:V min:V? max:V?"}, {"lerp", pointwise, "x:V end:V weight:V"},
    {"addcmul", pointwise, "x:V a:V b:V value:f=1"}, {"addcdiv", pointwise, "x:V a:V b:V value:f=1"},
    // movement: every result element is one element of an operand (or a fill value)
    {"view", movement, "x:T size:i*"}, {"permute", movement, "x:T dims:i*"}, {"expand", movement, "x:T size:i*"},
    {"slice", movement, "x:T dim:i start:i end:i step:i=1"}, {"select", movement, "x:T dim:i index:i"},
    {"cat", movement, "tensors:T* dim:i=0"}, {"pad", movement, "x:T pad:i* mode:s=\"constant\" value:f=0"},
    {"flip", movement, "x:T dims:i*"}, {"roll", movement, "x:T shifts:i* dims:i*"}, {"repeat", movement, "x:T repeats:i*"},
    {"unfold", movement, "x:T dim:i size:i step:i"}, {"tril", movement, "x:T diagonal:i=0"},
    {"triu", movement, "x:T diagonal:i=0"}, {"diagonal", movement, "x:T offset:i=0 dim1:i=0 dim2:i=1"},
    {"slice_scatter", movement, "x:T src:T dim:i start:i end:i step:i=1"},
    {"select_scatter", movement, "x:T src:T dim:i index:i"},
    {"upsample_nearest", movement, "x:T size:i* scales:s?"},
    // reductions; an empty `dims` means all of them
    {"sum", reduction, "x:T dims:i* keepdim:b=false"}, {"mean", reduction, "x:T dims:i* keepdim:b=false"},
    {"prod", reduction, "x:T dims:i* keepdim:b=false"}, {"amax", reduction, "x:T dims:i* keepdim:b=false"},
    {"amin", reduction, "x:T dims:i* keepdim:b=false"}, {"var", reduction, "x:T dims:i* correction:f=1 keepdim:b=false"},
    {"std", reduction, "x:T dims:i* correction:f=1 keepdim:b=false"}, {"any", reduction, "x:T dims:i* keepdim:b=false"},
    {"all", reduction, "x:T dims:i* keepdim:b=false"}, {"logsumexp", reduction, "x:T dims:i* keepdim:b=false"},
    {"vector_norm", reduction, "x:T ord:f=2 dims:i* keepdim:b=false"},
    {"argmax", arg_reduction, "x:T dim:i? keepdim:b=false"}, {"argmin", arg_reduction, "x:T dim:i? keepdim:b=false"},
    {"max_dim", arg_reduction, "x:T dim:i keepdim:b=false", 2}, {"min_dim", arg_reduction, "x:T dim:i keepdim:b=false", 2},
    // scans
    {"cumsum", scan, "x:T dim:i"}, {"cumprod", scan, "x:T dim:i"}, {"logcumsumexp", scan, "x:T dim:i"},
    {"cummax", scan, "x:T dim:i", 2}, {"cummin", scan, "x:T dim:i", 2},
    // rows and norms
    {"softmax", row, "x:T dim:i"}, {"log_softmax", row, "x:T dim:i"},
    {"layer_norm", norm, "x:T normalized_shape:i* weight:T? bias:T? eps:f=1e-5"},
    {"rms_norm", norm, "x:T normalized_shape:i* weight:T? eps:f"},
    {"group_norm", norm, "x:T num_groups:i weight:T? bias:T? eps:f=1e-5"},
    {"batch_norm", norm, "x:T weight:T? bias:T? running_mean:T? running_var:T? training:b momentum:f=0.1 eps:f=1e-5", 3},
    // contractions and convolutions
    {"matmul", contraction, "a:T b:T"}, {"linear", contraction, "x:T weight:T bias:T?"},
    {"addmm", contraction, "c:T a:T b:T beta:f=1 alpha:f=1"}, {"baddbmm", contraction, "c:T a:T b:T beta:f=1 alpha:f=1"},
    {"einsum", contraction, "equation:s tensors:T*"},
    {"convolution", convolution,
     "x:T weight:T bias:T? stride:i* padding:i* dilation:i* transposed:b=false output_padding:i* groups:i=1"},
    // pooling and resampling
    {"max_pool", pool, "x:T kernel:i* stride:i* padding:i* dilation:i* ceil_mode:b=false", 2},
    {"avg_pool", pool, "x:T kernel:i* stride:i* padding:i* ceil_mode:b=false count_include_pad:b=true divisor_override:i?"},
    {"adaptive_avg_pool", pool, "x:T output_size:i*"}, {"adaptive_max_pool", pool, "x:T output_size:i*", 2},
    {"upsample_linear", pool, "x:T size:i* align_corners:b=false scales:s?"},
    {"upsample_bicubic", pool, "x:T size:i* align_corners:b=false scales:s?"},
    // indexing
    {"gather", index, "x:T dim:i index:T"}, {"index_select", index, "x:T dim:i index:T"},
    {"embedding", index, "weight:T indices:T"}, {"index", index, "x:T indices:T*"},
    {"scatter", index, "x:T dim:i index:T src:V"}, {"scatter_add", index, "x:T dim:i index:T src:T"},
    {"index_put", index, "x:T indices:T* values:T accumulate:b=false"},
    {"topk", sort, "x:T k:i dim:i=-1 largest:b=true sorted:b=true", 2}, {"sort", sort, "x:T dim:i=-1 descending:b=false", 2},
    // attention and recurrent layers
    {"scaled_dot_product_attention", attention, "q:T k:T v:T mask:T? is_causal:b=false scale:f? enable_gqa:b=false"},
    {"lstm", recurrent, "x:T h0:T c0:T params:T* has_biases:b num_layers:i bidirectional:b=false batch_first:b=false", 3},
    {"gru", recurrent, "x:T h0:T params:T* has_biases:b num_layers:i bidirectional:b=false batch_first:b=false", 2},
    {"rnn", recurrent,
     "x:T h0:T params:T* nonlinearity:s has_biases:b num_layers:i bidirectional:b=false batch_first:b=false", 2},
};

struct Kind {
  const char* code;
  ParamKind kind;
};
constexpr Kind kKinds[] = {
    {"T", ParamKind::tensor},    {"T?", ParamKind::tensor_opt},  {"V", ParamKind::operand},
    {"V?", ParamKind::operand_opt}, {"T*", ParamKind::tensors},  {"i", ParamKind::integer},
    {"i?", ParamKind::integer_opt}, {"f", ParamKind::number},    {"f?", ParamKind::number_opt},
    {"b", ParamKind::boolean},   {"s", ParamKind::text},         {"s?", ParamKind::text_opt},
    {"d", ParamKind::dtype},     {"i*", ParamKind::integers},    {"i*?", ParamKind::integers_opt},
};

ParamKind kind_from_code(std::string_view code) {
  for (const Kind& k : kKinds)
    if (code == k.code) return k.kind;
  throw std::logic_error("op table: unknown parameter kind " + std::string(code));
}

bool is_optional(ParamKind k) {
  return k == ParamKind::tensor_opt || k == ParamKind::operand_opt || k == ParamKind::integer_opt ||
         k == ParamKind::number_opt || k == ParamKind::text_opt || k == ParamKind::integers_opt;
}

Arg default_from_text(ParamKind kind, std::string_view text) {
  const std::string s(text);
  switch (kind) {
    case ParamKind::integer: return static_cast<int64_t>(std::stoll(s));
    case ParamKind::number: return std::stod(s);
    case ParamKind::boolean: return s == "true";
    case ParamKind::text: return s.substr(1, s.size() - 2);
    default: throw std::logic_error("op table: this parameter kind takes no default: " + s);
  }
}

Param parse_param(std::string_view spec) {
  const size_t colon = spec.find(':');
  const size_t equals = spec.find('=');
  const std::string_view code = spec.substr(colon + 1, equals == spec.npos ? spec.npos : equals - colon - 1);
  Param p{spec.substr(0, colon), kind_from_code(code), None{}, true};
  if (equals != spec.npos) {
    p.default_value = default_from_text(p.kind, spec.substr(equals + 1));
    p.required = false;
  } else if (is_optional(p.kind)) {
    p.required = false;
  }
  return p;
}

OpSchema parse_row(const Row& row) {
  OpSchema schema{row.name, row.cls, {}, row.max_results};
  std::string_view rest = row.params;
  while (!rest.empty()) {
    const size_t space = rest.find(' ');
    schema.params.push_back(parse_param(rest.substr(0, space)));
    rest = space == rest.npos ? std::string_view{} : rest.substr(space + 1);
  }
  return schema;
}

}  // namespace

const std::vector<OpSchema>& all_ops() {
  static const std::vector<OpSchema> ops = [] {
    std::vector<OpSchema> out;
    for (const Row& row : kRows) out.push_back(parse_row(row));
    return out;
  }();
  return ops;
}

const OpSchema* find_op(std::string_view name) {
  static const std::unordered_map<std::string_view, const OpSchema*> by_name = [] {
    std::unordered_map<std::string_view, const OpSchema*> map;
    for (const OpSchema& op : all_ops()) map.emplace(op.name, &op);
    return map;
  }();
  const auto it = by_name.find(name);
  return it == by_name.end() ? nullptr : it->second;
}

bool is_positional(ParamKind k) {
  return k == ParamKind::tensor || k == ParamKind::tensor_opt || k == ParamKind::operand || k == ParamKind::operand_opt ||
         k == ParamKind::tensors;
}

namespace {

// Rank that a node's dims refer to: that of its first tensor.
std::optional<int64_t> rank_of_first(const Graph& g, const Node& n) {
  for (const ValueRef& v : operands(n)) {
    if (static_cast<size_t>(v.node) >= g.nodes.size() || static_cast<size_t>(v.output) >= g.at(v).types.size()) return std::nullopt;
    return std::max<int64_t>(1, static_cast<int64_t>(g.type_of(v).shape.size()));
  }
  return std::nullopt;
}

}  // namespace

void canonicalise(const Graph& g, Node& n) {
  const auto rank = rank_of_first(g, n);
  const auto wrap = [&](int64_t& d) { if (rank && d < 0 && d >= -*rank) d += *rank; };
  for (size_t i = 0; i < n.args.size() && i < n.op->params.size(); ++i) {
    const Param& p = n.op->params[i];
    auto* integer = std::get_if<int64_t>(&n.args[i]);
    auto* list = std::get_if<IntList>(&n.args[i]);
    if ((p.kind == ParamKind::number || p.kind == ParamKind::number_opt) && integer) n.args[i] = static_cast<double>(*integer);
    else if (p.kind == ParamKind::tensors && list && list->empty()) n.args[i] = ValueList{};
    else if (integer && (p.name == "dim" || p.name == "dim1" || p.name == "dim2")) wrap(*integer);
    else if (list && p.name == "dims") for (int64_t& d : *list) wrap(d);
  }
}

int OpSchema::index_of(std::string_view parameter) const {
  for (size_t i = 0; i < params.size(); ++i)
    if (params[i].name == parameter) return static_cast<int>(i);
  return -1;
}

}  // namespace stitch::ir
