#include "code/expr/emitter.h"

#include <algorithm>
#include <cmath>

#include "code/skill.h"
#include "ir/ops.h"
#include "plan/fusion.h"

namespace stitch::code {

using ir::DType;
using ir::ValueRef;

namespace {

constexpr int kMaxNesting = 4000;  // recursion depth of value(): a chain of this many nodes in one task

std::string padding(int depth) { return std::string(static_cast<size_t>(depth + 1) * 2, ' '); }

}  // namespace

Emitter::Emitter(const ir::Graph& graph, IndexSpace& space, bool wide) : graph_(graph), space_(space), wide_(wide) {
  scopes_.emplace_back();
}

// ---------------------------------------------------------------------------------------------------------------------
// Scopes and names

void Emitter::open(const std::string& header, bool conditional, std::string_view pragma) {
  scopes_.emplace_back();
  scopes_.back().conditional = conditional;
  if (!pragma.empty()) scopes_.back().body = fmt::format("#pragma {}\n", pragma);
  scopes_.back().body += padding(depth() - 1) + header + (header.empty() ? "{\n" : " {\n");
}

void Emitter::close(std::string_view trailer) {
  const std::string block = close_apart(trailer);
  scopes_.back().body += block;
}

std::string Emitter::close_apart(std::string_view trailer) {
  Scope inner = std::move(scopes_.back());
  scopes_.pop_back();
  for (auto it = variable_depth_.begin(); it != variable_depth_.end();)
    it = it->second > depth() ? variable_depth_.erase(it) : std::next(it);
  // A variable declared inside is reused under the same name by later loops; what was computed from it is forgotten.
  return inner.body + padding(depth()) + "}" + std::string(trailer) + "\n";
}

void Emitter::declare(const Index& variable) {
  for (const auto& [atom, coefficient] : variable.terms) variable_depth_[atom] = depth();
}

void Emitter::line(std::string_view text) { line_at(depth(), text); }

void Emitter::line_at(int depth, std::string_view text) {
  if (++lines_ > line_limit) refuse("the task needs too many lines of code in one kernel");
  std::string& body = scopes_[static_cast<size_t>(depth)].body;
  if (!text.empty() && text[0] != '#') body += padding(depth);
  body += text;
  body += '\n';
}

void Emitter::remember(const std::string& key, Val value) {
  scopes_[static_cast<size_t>(value.depth)].memo[key] = std::move(value);
}

const Val* Emitter::recall(const std::string& key) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
    if (const auto it = scope->memo.find(key); it != scope->memo.end()) return &it->second;
  return nullptr;
}

std::string Emitter::key_of(ValueRef v, const Coords& coords) {
  std::string key = std::to_string(v.node) + "." + std::to_string(v.output) + "@";
  for (const Index& c : coords) {
    for (const auto& [atom, k] : c.terms) key += std::to_string(k) + "*" + std::to_string(atom) + "+";
    key += std::to_string(c.constant) + ",";
  }
  return key;
}

std::string Emitter::fresh(std::string_view stem) {
  auto it = names_.find(stem);
  if (it == names_.end()) {
    names_.emplace(stem, 1);
    return std::string(stem);
  }
  for (;;) {
    std::string name = std::string(stem) + "_" + std::to_string(++it->second);
    if (names_.find(name) == names_.end()) {
      names_.emplace(name, 1);
      return name;
    }
  }
}

int Emitter::innermost_conditional() const {
  for (int d = depth(); d > 0; --d)
    if (scopes_[static_cast<size_t>(d)].conditional) return d;
  return 0;
}

void Emitter::refuse(std::string why) {
  if (refusal_.empty()) refusal_ = std::move(why);
}

// ---------------------------------------------------------------------------------------------------------------------
// Indices

int Emitter::depth(const Index& index) const {
  int d = 0;
  for (const auto& [id, c] : index.terms) {
    const auto& atom = space_.atom(id);
    if (atom.kind == IndexSpace::Atom::Kind::variable) {
      const auto it = variable_depth_.find(id);
      d = std::max(d, it == variable_depth_.end() ? 0 : it->second);
    } else {
      d = std::max(d, depth(atom.operand));
    }
  }
  return d;
}

const std::string* Emitter::index_name(int32_t atom) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
    if (const auto it = scope->index_names.find(atom); it != scope->index_names.end()) return &it->second;
  return nullptr;
}

void Emitter::name_atom(int32_t id) {
  const IndexSpace::Atom atom = space_.atom(id);
  const bool quotient = atom.kind == IndexSpace::Atom::Kind::quotient;
  std::string inner = text(atom.operand);
  const bool may_be_negative = space_.range(atom.operand).min < 0;
  if (atom.operand.terms.size() > 1 || atom.operand.constant != 0 || atom.operand.terms[0].second != 1) inner = "(" + inner + ")";
  std::string expression;
  if (may_be_negative) {
    expression = fmt::format("{}<{}>({}, {})", quotient ? "floor_div" : "floor_mod", index_type(), inner, atom.divisor);
  } else {
    expression = fmt::format("{} {} {}", inner, quotient ? '/' : '%', atom.divisor);
  }
  const int d = depth(atom.operand);
  std::string name = fresh("i");
  line_at(d, fmt::format("const {} {} = {};", index_type(), name, expression));
  scopes_[static_cast<size_t>(d)].index_names[id] = std::move(name);
}

std::string Emitter::text(const Index& index) {
  std::string out;
  for (const auto& [id, c] : index.terms) {
    std::string name;
    if (space_.atom(id).kind == IndexSpace::Atom::Kind::variable) {
      name = space_.atom(id).name;
    } else {
      if (!index_name(id)) name_atom(id);
      name = *index_name(id);
    }
    if (!out.empty()) {
      out += c < 0 ? " - " : " + ";
    } else if (c < 0) {
      out += "-";
    }
    out += name;
    if (std::abs(c) != 1) out += " * " + std::to_string(std::abs(c));
  }
  if (out.empty()) return std::to_string(index.constant);
  if (index.constant != 0) out += (index.constant < 0 ? " - " : " + ") + std::to_string(std::abs(index.constant));
  return out;
}

Index Emitter::opaque(std::string_view stem, const std::string& text, int depth, int64_t extent) {
  const std::string name = fresh(stem);
  line_at(depth, fmt::format("const {} {} = {};", index_type(), name, text));
  const Index v = space_.variable(name, extent);
  for (const auto& [atom, coefficient] : v.terms) variable_depth_[atom] = depth;
  return v;
}

std::string Emitter::bounds(const Index& index, int64_t min, int64_t max) {
  const IndexRange r = space_.range(index);
  if (r.max < min || r.min >= max) return "false";
  std::string out;
  // Compare the variable part, so that the text reads i >= 2 and not i - 2 >= 0.
  Index variable = index;
  variable.constant = 0;
  if (r.min < min) out = fmt::format("{} >= {}", text(variable), min - index.constant);
  if (r.max >= max) out += fmt::format("{}{} < {}", out.empty() ? "" : " && ", text(variable), max - index.constant);
  return out;
}

// ---------------------------------------------------------------------------------------------------------------------
// Values

Val Emitter::define(std::string_view stem, DType type, std::string text, int depth, std::string_view comment) {
  Val v{fresh(stem), type, depth};
  line_at(depth, fmt::format("const {} {} = {};{}{}", compute_type(type), v.text, text, comment.empty() ? "" : "  // ", comment));
  return v;
}

Val Emitter::literal(double value, DType type) const {
  if (ir::is_floating(type)) return {float_literal(value, type), type, 0};
  if (ir::is_bool(type)) return {value != 0 ? "true" : "false", type, 0};
  std::string text = int_literal(static_cast<int64_t>(value));
  if (type != DType::i32) text = fmt::format("{}({})", compute_type(type), text);
  return {std::move(text), type, 0};
}

Val Emitter::convert(const Val& v, DType to) {
  if (v.type == to) return v;
  if (compute_type(v.type) == compute_type(to)) return {v.text, to, v.depth};
  if (ir::is_bool(to)) return {fmt::format("({} != 0)", v.text), to, v.depth};
  const bool narrow_integer = to == DType::u8 || to == DType::i8 || to == DType::i16;
  if (ir::is_floating(v.type) && narrow_integer)  // as PyTorch: through int64, so that -1.0 becomes 255
    return {fmt::format("static_cast<{}>(static_cast<int64_t>({}))", compute_type(to), v.text), to, v.depth};
  return {fmt::format("static_cast<{}>({})", compute_type(to), v.text), to, v.depth};
}

Val Emitter::from_index(const Index& index, DType type) {
  return {fmt::format("static_cast<{}>({})", compute_type(type), text(index)), type, depth(index)};
}

void Emitter::set_lanes(const Index& lane, int width) {
  lane_ = lane;
  width_ = width;
}

Val Emitter::operand(const ir::Arg& arg, const Coords& coords, const ir::Shape& shape, DType type) {
  if (const auto* v = std::get_if<ValueRef>(&arg)) {
    const ir::Shape& own = graph_.type_of(*v).shape;
    Coords c(own.size());
    const size_t skip = coords.size() - own.size();
    for (size_t d = 0; d < own.size(); ++d) c[d] = own[d] == 1 && shape[d + skip] != 1 ? Index{} : coords[d + skip];
    return convert(value(*v, c), type);
  }
  if (const auto* b = std::get_if<bool>(&arg)) return literal(*b, type);
  if (const auto* i = std::get_if<int64_t>(&arg)) {
    if (type == DType::i64) return {fmt::format("int64_t({})", int_literal(*i)), type, 0};
    return literal(static_cast<double>(*i), type);
  }
  return literal(std::get<double>(arg), type);
}

Val Emitter::value(ValueRef v, const Coords& coords) {
  if (refused()) return zero(graph_.type_of(v).dtype);
  const std::string key = key_of(v, coords);
  if (const Val* known = recall(key)) return *known;
  Val result;
  if (buffers_.count(v)) {
    result = load(v, coords);
  } else if (++nesting_ > kMaxNesting) {
    refuse("the task is too deep for one kernel");
    result = zero(graph_.type_of(v).dtype);
  } else {
    result = compute(v, coords);
    --nesting_;
  }
  if (!refused()) remember(key, result);
  return result;
}

Val Emitter::compute(ValueRef v, const Coords& coords) {
  if (hook_)
    if (auto special = hook_(v, coords)) return *special;
  const ir::Node& node = graph_.at(v);
  if (!nodes_.count(v.node)) {
    refuse(fmt::format("{} is neither in the task nor an input of it", label(graph_, v.node)));
    return zero(node.types[static_cast<size_t>(v.output)].dtype);
  }
  switch (node.op->cls) {
    case ir::OpClass::pointwise: return emit_pointwise(*this, node, v, coords);
    case ir::OpClass::movement: return emit_movement(*this, node, v, coords);
    case ir::OpClass::source: return emit_source(*this, node, v, coords);
    case ir::OpClass::norm:
      if (node.op->name == "batch_norm" && !node.boolean("training")) return emit_batch_norm(*this, node, v, coords);
      break;
    case ir::OpClass::index:
      if (is_inline(node)) return emit_index(*this, node, v, coords);
      break;
    case ir::OpClass::reduction:
      if (plan::is_short_reduction(graph_, node)) return emit_short_reduction(*this, node, v, coords);
      break;
    default: break;
  }
  if (loops_) return emit_loop(*this, node, v, coords);
  refuse(fmt::format("{} cannot be computed element by element", label(graph_, v.node)));
  return zero(node.types[static_cast<size_t>(v.output)].dtype);
}

Val Emitter::load(ValueRef v, const Coords& coords) {
  const ir::TensorType& type = graph_.type_of(v);
  const std::string& pointer = buffers_.at(v);
  used_.insert(v);
  const Index address = space_.ravel(coords, type.shape);
  const bool widened = type.dtype == DType::f16 || type.dtype == DType::bf16;
  if (load_hook_)
    if (const auto known = load_hook_(v, address))
      return define("v", type.dtype, widened ? fmt::format("widen({})", *known) : *known, std::max(depth(address), innermost_conditional()));
  if (width_ > 1 && depth(address) >= depth(lane_) && space_.depends_on(address, lane_)) {
    const Index base = space_.sub(address, lane_);
    bool aligned = base.constant % width_ == 0 && !space_.depends_on(base, lane_) && innermost_conditional() < depth(lane_);
    for (const auto& [atom, c] : base.terms) aligned = aligned && c % width_ == 0;
    if (aligned) return vector_load(v, pointer, base);
    loads_.scalar_elements = std::max(loads_.scalar_elements, ir::numel(type.shape));
  } else {
    ++loads_.uniform;
  }
  const std::string element = fmt::format("{}[{}]", pointer, text(address));
  const int d = std::max(depth(address), innermost_conditional());
  return define("v", type.dtype, widened ? fmt::format("widen({})", element) : element, d);
}

// One 16-byte (or shorter) access for all lanes; the element is picked by the lane variable.
Val Emitter::vector_load(ValueRef v, const std::string& pointer, const Index& base) {
  const DType dtype = graph_.type_of(v).dtype;
  const std::string key = "vector:" + pointer + key_of(v, {base});
  const Val* vec = recall(key);
  if (!vec) {
    ++loads_.vector;
    const int d = std::max(depth(base), innermost_conditional());
    Val loaded{fresh("v"), dtype, d};
    const std::string where = base.is_constant() && base.constant == 0 ? pointer : pointer + " + " + text(base);
    line_at(d, fmt::format("const auto {} = load_vec<{}>({});", loaded.text, width_, where));
    remember(key, loaded);
    vec = recall(key);
  }
  const std::string element = fmt::format("{}[{}]", vec->text, text(lane_));
  const bool widened = dtype == DType::f16 || dtype == DType::bf16;
  return {widened ? fmt::format("widen({})", element) : element, dtype, depth(lane_)};
}

Val Emitter::branch(std::string_view stem, DType type, const std::string& condition,
                    const std::function<Val()>& yes, const std::function<Val()>& no, std::string_view comment) {
  if (condition.empty()) return yes();
  if (condition == "false") return no();
  // The branch stays in the current scope: its sides may use anything visible here.
  Val result{fresh(stem), type, depth()};
  line(fmt::format("{} {};{}{}", compute_type(type), result.text, comment.empty() ? "" : "  // ", comment));
  open(fmt::format("if ({})", condition), true);
  line(fmt::format("{} = {};", result.text, convert(yes(), type).text));
  // Kept apart: the second side may still put an index that both could use in front of the "if", never between the two.
  const std::string first = close_apart();
  open("else", true);
  line(fmt::format("{} = {};", result.text, convert(no(), type).text));
  const std::string second = close_apart();
  scopes_.back().body += first + second;
  return result;
}

// ---------------------------------------------------------------------------------------------------------------------
// Free functions

std::string label(const ir::Graph& graph, int32_t node) {
  return fmt::format("%{} {}", node, graph.nodes[static_cast<size_t>(node)].op->name);
}

std::string float_literal(double value, DType type) {
  const bool is_double = type == DType::f64;
  if (!is_double) value = static_cast<float>(value);
  if (std::isnan(value)) return is_double ? "double(NAN)" : "NAN";
  if (std::isinf(value)) return fmt::format("{}{}", value < 0 ? "-" : "", is_double ? "double(INFINITY)" : "INFINITY");
  std::string text = is_double ? fmt::format("{}", value) : fmt::format("{}", static_cast<float>(value));
  if (text.find_first_of(".e") == text.npos) text += ".0";
  return is_double ? text : text + "f";
}

std::string int_literal(int64_t value) {
  if (value == INT64_MIN) return "INT64_MIN";
  return value > INT32_MAX || value < INT32_MIN ? fmt::format("INT64_C({})", value) : fmt::format("{}", value);
}

bool is_inline(const ir::Node& node) {
  switch (node.op->cls) {
    case ir::OpClass::pointwise:
    case ir::OpClass::movement: return true;
    case ir::OpClass::source: return node.op->name != "input" && node.op->name != "weight";
    case ir::OpClass::norm: return node.op->name == "batch_norm" && !node.boolean("training");
    case ir::OpClass::index:
      return node.op->name == "gather" || node.op->name == "index_select" || node.op->name == "embedding" || node.op->name == "index";
    default: return false;
  }
}

}  // namespace stitch::code
