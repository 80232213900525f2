// The driver: runs the nodes in order, keeps what still has users, counts live bytes.
#include "interp/interpreter.h"

#include <algorithm>

#include "base/parallel.h"
#include "interp/rules.h"
#include "ir/ops.h"

namespace stitch::interp {

const Value* Call::maybe(std::string_view parameter) const {
  const auto* v = std::get_if<ir::ValueRef>(&node.arg(parameter));
  return v ? &value(*v) : nullptr;
}

std::vector<const Value*> Call::list(std::string_view parameter) const {
  std::vector<const Value*> out;
  for (const ir::ValueRef& v : std::get<ir::ValueList>(node.arg(parameter))) out.push_back(v.node < 0 ? nullptr : &value(v));
  return out;
}

Value Call::result(size_t k) const { return make_value(node.types[k]); }

std::string Call::where() const {
  return fmt::format("%{} {}{}", index_, node.op_name(), node.source.empty() ? "" : fmt::format(" ({})", node.source));
}

namespace {

class Run {
 public:
  using Observer = std::function<void(int32_t, const Values&)>;
  Run(const ir::Graph& g, const Options& options) : g_(g), options_(options), results_(g.nodes.size()), leaves_(g.nodes.size()), pending_(g.nodes.size(), 0) {}

  Status bind(const std::vector<int32_t>& nodes, const Values& values, const char* what);
  Status run(const Observer& observe);
  Values outputs();

 private:
  const Value& lookup(ir::ValueRef v) const {
    const auto n = static_cast<size_t>(v.node);
    return leaves_[n] ? *leaves_[n] : results_[n].at(static_cast<size_t>(v.output));
  }
  Status step(int32_t node, const Observer& observe);
  Status reserve(const Call&);
  void release(int32_t node);
  void finish(Value&) const;

  const ir::Graph& g_;
  const Options& options_;
  std::vector<Values> results_;
  std::vector<const Value*> leaves_;  // inputs and weights stay with the caller
  std::vector<int32_t> pending_;      // users (and outputs) that still need a node's results
  int64_t live_bytes_ = 0;
};

int64_t stored_bytes(const std::vector<ir::TensorType>& types) {
  int64_t bytes = 0;
  for (const ir::TensorType& t : types)
    if (__builtin_add_overflow(bytes, ir::bytes_of({ir::DType::i64, t.shape}), &bytes)) return INT64_MAX;
  return bytes;
}

Status Run::bind(const std::vector<int32_t>& nodes, const Values& values, const char* what) {
  if (nodes.size() != values.size())
    return fail(ErrorKind::bad_input, "The program has {} {}s, but {} were given.", nodes.size(), what, values.size());
  for (size_t k = 0; k < nodes.size(); ++k) {
    const ir::Node& n = g_.nodes[static_cast<size_t>(nodes[k])];
    const Value& v = values[k];
    const size_t stored = v.floating() ? v.f.size() : v.i.size();
    if (v.type != n.type() || static_cast<int64_t>(stored) != ir::numel(n.type().shape))
      return fail(ErrorKind::bad_input, "The {} \"{}\" must be {}, but {} with {} elements was given.", what, n.name, ir::to_string(n.type()),
                  ir::to_string(v.type), stored);
    leaves_[static_cast<size_t>(nodes[k])] = &v;
  }
  return {};
}

Status Run::run(const Observer& observe) {
  const auto users = ir::users(g_);
  for (size_t i = 0; i < users.size(); ++i) pending_[i] = static_cast<int32_t>(users[i].size());
  for (const ir::Output& o : g_.outputs) ++pending_[static_cast<size_t>(o.value.node)];
  for (size_t i = 0; i < g_.nodes.size(); ++i)
    if (!leaves_[i]) STITCH_CHECK_OK(step(static_cast<int32_t>(i), observe));
  return {};
}

Status Run::step(int32_t node, const Observer& observe) {
  const Call call(g_, node, options_, [this](ir::ValueRef v) -> const Value& { return lookup(v); });
  const Rule rule = find_rule(call.node.op_name());
  if (!rule) return fail(ErrorKind::internal, "The interpreter has no rule for {}; please report this.", call.where());
  STITCH_CHECK_OK(reserve(call));
  STITCH_TRY(Values made, rule(call));
  for (size_t k = 0; k < made.size(); ++k) {
    made[k].type = call.node.types[k];
    finish(made[k]);
  }
  if (observe) observe(node, made);
  const auto n = static_cast<size_t>(node);
  results_[n] = std::move(made);
  if (pending_[n] == 0) {
    ++pending_[n];
    release(node);  // nobody reads it
  }
  auto read = ir::operands(call.node);
  std::sort(read.begin(), read.end());
  for (size_t i = 0; i < read.size(); ++i)
    if (i == 0 || read[i].node != read[i - 1].node) release(read[i].node);
  return {};
}

Status Run::reserve(const Call& call) {
  const int64_t bytes = stored_bytes(call.node.types);
  if (__builtin_add_overflow(live_bytes_, bytes, &live_bytes_) || live_bytes_ > options_.memory_limit)
    return fail(ErrorKind::environment, "The reference interpreter would need more than {} bytes at {}; use smaller inputs or raise its memory limit.",
                options_.memory_limit, call.where());
  return {};
}

void Run::release(int32_t node) {
  const auto n = static_cast<size_t>(node);
  if (--pending_[n] > 0 || leaves_[n]) return;
  live_bytes_ -= stored_bytes(g_.nodes[n].types);
  results_[n] = {};
}

// The result as its dtype holds it: integers wrap; floats are rounded if asked for.
void Run::finish(Value& v) const {
  const ir::DType d = v.type.dtype;
  if (v.floating()) {
    if (!options_.round_to_dtype || d == ir::DType::f64) return;
    parallel_for(static_cast<int64_t>(v.f.size()), grain_for(2), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) v.f[static_cast<size_t>(i)] = store_as(v.f[static_cast<size_t>(i)], d);
    });
  } else if (d != ir::DType::i64) {
    for (int64_t& e : v.i) e = wrap(e, d);
  }
}

// Copies what the caller owns or another output still needs, moves the rest.
Values Run::outputs() {
  Values out;
  for (size_t k = 0; k < g_.outputs.size(); ++k) {
    const ir::ValueRef v = g_.outputs[k].value;
    const auto n = static_cast<size_t>(v.node);
    const bool again = std::any_of(g_.outputs.begin() + static_cast<std::ptrdiff_t>(k) + 1, g_.outputs.end(), [&](const ir::Output& o) { return o.value == v; });
    if (leaves_[n] || again) out.push_back(lookup(v));
    else out.push_back(std::move(results_[n].at(static_cast<size_t>(v.output))));
  }
  return out;
}

}  // namespace

Result<Values> run(const ir::Graph& g, const Values& inputs, const Values& weights, const Options& options,
                   const std::function<void(int32_t, const Values&)>& observe) {
  Run r(g, options);
  STITCH_CHECK_OK(r.bind(g.inputs(), inputs, "input"));
  STITCH_CHECK_OK(r.bind(g.weights(), weights, "weight"));
  STITCH_CHECK_OK(r.run(observe));
  return r.outputs();
}

Result<Values> run(const ir::Graph& g, const Values& inputs, const Values& weights, const Options& options) {
  return run(g, inputs, weights, options, nullptr);
}

}  // namespace stitch::interp
