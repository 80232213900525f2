// Reductions, softmax and norms with their pointwise neighbours. What is computed is in rows.h; here is how: the layout that fits the
// shape, and the kernels. Rows that are contiguous are shared by a group of threads (a few lanes, a warp, a block) and stay in
// registers when they fit; where the innermost dim is kept, neighbouring threads take neighbouring rows. When there are too few rows to
// fill the device, several blocks share a row: one kernel per stage leaves partial results in scratch, the next one combines them.
#include <algorithm>
#include <set>

#include "code/skills/common.h"
#include "code/skills/rows.h"
#include "code/skills/skills.h"
#include "ir/ops.h"

namespace stitch::code {
namespace {

using ir::ValueRef;

constexpr int64_t kProcessors = 132;        // multiprocessors to fill
constexpr int kValueBytes = 24;             // the largest value that is exchanged: moments in double
constexpr int kColumns = 32, kParts = 8;    // columns form: a warp of rows, eight shares of each

struct Layout {
  bool columns = false;
  int group = 1;       // threads that share a row; in columns form kParts
  int block = 256;
  int width = 1;       // neighbouring elements per access
  int items = 0;       // accesses per thread whose elements stay in registers; 0: the row is read again in every stage
  int64_t splits = 1;  // blocks that share a row
  int64_t share = 0;   // accesses per split
  int64_t results_share = 0;  // of the kernel that writes one value per element: smaller shares keep more memory accesses in flight
  bool together() const { return !columns && group > 32; }  // one row per block
};

int power_of_two_at_least(int64_t n) {
  int p = 1;
  while (p < n && p < 1024) p *= 2;
  return p;
}

class LayoutChoice {
 public:
  LayoutChoice(const TaskContext& c, const RowProgram& p) : c_(c), p_(p), outer_(std::max<int64_t>(1, p.pattern.outer)), inner_(std::max<int64_t>(1, p.pattern.inner)) {
    std::set<ValueRef> kept;
    for (const auto& stage : p.stages)
      for (const Statistic& s : stage) kept.insert(s.x);
    values_ = static_cast<int>(kept.size());
  }

  Layout choose(int widest) const {
    const bool columns = !p_.pattern.reduces_last() && p_.pattern.dims.back().first >= 8;
    return columns ? column_layout() : group_layout(widest);
  }

  // Largest access of 16 bytes at most that divides the contiguous part of a row.
  int widest_access() const {
    if (p_.pattern.dims.empty() || !p_.pattern.reduces_last()) return 1;
    int64_t bytes = 2;
    const int64_t elements = outer_ * inner_;
    const auto take = [&](ValueRef v) {
      const ir::TensorType& t = c_.graph.type_of(v);
      if (ir::numel(t.shape) * 2 >= elements) bytes = std::max(bytes, ir::size_of(t.dtype));
    };
    for (ValueRef v : c_.task.inputs) take(v);
    for (ValueRef v : c_.task.outputs) take(v);
    int width = static_cast<int>(16 / bytes);
    while (width > 1 && p_.pattern.dims.back().first % width != 0) width /= 2;
    return width;
  }

 private:
  int register_limit(int group) const { return (group >= 1024 ? 16 : 32) / values_; }

  Layout group_layout(int width) const {
    Layout l;
    l.width = width;
    const int64_t accesses = inner_ / width;
    const auto per_thread = [&](int group) { return ceil_div(accesses, group); };
    // A few accesses in flight per thread hide memory latency; more threads per row when rows alone do not fill the device.
    const int64_t wanted = p_.one_pass() ? 8 : std::max(1, 16 / width);
    while (l.group < 1024 && per_thread(l.group) > wanted) l.group *= 2;
    while (l.group < 1024 && l.group < power_of_two_at_least(accesses) && outer_ * l.group < kProcessors * 1024) l.group *= 2;
    if (!p_.one_pass()) {
      while (l.group < 512 && per_thread(l.group) * width > register_limit(l.group)) l.group *= 2;
      if (per_thread(l.group) * width > register_limit(l.group) && l.group < 1024 && per_thread(1024) * width <= register_limit(1024)) l.group = 1024;
      if (per_thread(l.group) * width <= register_limit(l.group)) l.items = static_cast<int>(per_thread(l.group));
    }
    l.block = l.group <= 32 ? 256 : l.group;
    // One block per row leaves most of the device idle: share rows among blocks.
    if (outer_ < kProcessors && inner_ >= 16384 && outer_ * inner_ >= 1 << 18) {
      const int64_t splits = std::min(ceil_div(8 * kProcessors, outer_), ceil_div(accesses, 256 * 4));
      if (splits > 1) share(l, splits, accesses);
    }
    return l;
  }
  static void share(Layout& l, int64_t splits, int64_t accesses) {
    if (!l.columns) l.group = l.block = 256;
    l.items = 0;
    l.share = ceil_div(accesses, splits);
    l.splits = ceil_div(accesses, l.share);
    l.results_share = std::min(l.share, int64_t{8} * l.group);
  }

  Layout column_layout() const {
    Layout l;
    l.columns = true;
    l.group = kParts;
    const int64_t blocks = ceil_div(outer_, kColumns), per_thread = ceil_div(inner_, kParts);
    if (!p_.one_pass() && per_thread <= register_limit(256)) l.items = static_cast<int>(per_thread);
    const int64_t enough = (p_.one_pass() ? 8 : 1) * kProcessors;  // more stages, more launches: then only where it is needed
    if (blocks < enough && inner_ >= 64 && outer_ * inner_ >= 1 << 16) {
      const int64_t splits = std::min(ceil_div(8 * kProcessors, blocks), ceil_div(inner_, 32));
      if (splits > 1) share(l, splits, inner_);
    }
    return l;
  }

  const TaskContext& c_;
  const RowProgram& p_;
  int64_t outer_, inner_;
  int values_ = 1;
};

// Where a stage's partial results lie in scratch: one value per split and row.
struct Partial {
  std::string type;
  size_t offset = 0;
};

class RowKernel {
 public:
  enum class Role { whole, stage, results };

  // `stage`: the stage this kernel computes (Role::stage); results combines all.
  RowKernel(const TaskContext& c, const RowProgram& p, const Layout& l, const std::vector<std::vector<Partial>>& partials, Role role, size_t stage)
      : c_(c), p_(p), l_(l), partials_(partials), role_(role), stage_(stage), e_(c.graph, space_, needs_wide_index(c)), scope_{e_, p_.pattern, {}, {}, {}} {}

  Result<KernelText> write(const std::string& name) {
    set_up(e_, c_);
    e_.set_hook([this](ValueRef v, const Coords& at) { return p_.known(scope_, c_.graph, v, at); });
    preamble();
    const size_t known = role_ == Role::whole ? 0 : role_ == Role::stage ? stage_ : p_.stages.size();
    for (size_t s = 0; s < known; ++s) combine(s);
    if (role_ == Role::whole)
      for (size_t s = 0; s < p_.stages.size(); ++s) finish(s, accumulate(s));
    if (role_ == Role::stage) leave_partials(accumulate(stage_));
    if (role_ != Role::stage) {
      store_elements();
      store_rows();
    }
    if (e_.refused()) return fail(ErrorKind::unsupported, "{}", e_.refusal());
    return text(name);
  }
  // Whether wide accesses were of use.
  bool worthwhile() const { return e_.loads().scalar_elements * 8 <= p_.pattern.outer * p_.pattern.inner; }

 private:
  std::string_view type() const { return e_.index_type(); }
  int64_t accesses() const { return p_.pattern.inner / l_.width; }
  int64_t outer() const { return std::max<int64_t>(1, p_.pattern.outer); }
  int rows_per_block() const { return l_.columns ? kColumns : l_.together() ? 1 : l_.block / l_.group; }
  bool shared() const { return l_.splits > 1; }
  int64_t share() const { return role_ == Role::results && !p_.full.empty() ? l_.results_share : l_.share; }
  bool ragged() const { return outer() % rows_per_block() != 0; }  // the last block has threads without a row
  std::string cast_int(const std::string& what) const { return fmt::format("static_cast<{}>({})", type(), what); }

  // r: this thread's row; t: its place among the threads of the row.
  void preamble() {
    for (std::string_view name : {"r", "t", "q", "k", "n", "words", "slot", "first", "last"}) e_.reserve(name);
    const bool exchange = l_.columns || l_.together();
    if (exchange) e_.line(fmt::format("__shared__ double words[{}];  // what the warps exchange", (l_.columns ? 256 : 32) * kValueBytes / 8));
    const std::string block = cast_int(shared() ? "blockIdx.y" : "blockIdx.x"), thread = cast_int("threadIdx.x");
    const std::string lane = l_.columns ? fmt::format("{} % {}", thread, kColumns) : thread;
    if (l_.columns) e_.line(fmt::format("const {} t = {} / {};  // this warp's share of the rows' elements", type(), thread, kColumns));
    else if (l_.together()) e_.line(fmt::format("const {} t = {};", type(), thread));
    else e_.line(fmt::format("const {} t = {} % {};  // lane in the group that has the row", type(), thread, l_.group));
    std::string row = block;
    if (l_.columns) row = fmt::format("{} * {} + {}", block, kColumns, lane);
    else if (!l_.together()) row = fmt::format("{} * {} + {} / {}", block, rows_per_block(), thread, l_.group);
    if (ragged()) {
      // Threads beyond the last row work on it too, so that all of a warp take part in the exchange; they store nothing.
      e_.line(fmt::format("const {} slot = {};", type(), row));
      e_.line(fmt::format("const bool active = slot < {};", outer()));
      row = fmt::format("active ? slot : {}", outer() - 1);
    }
    if (outer() > 1) e_.line(fmt::format("const {} r = {};", type(), row));
    if (shared()) {
      e_.line(fmt::format("const {} first = {} * {};  // this block's share of the row", type(), cast_int("blockIdx.x"), share()));
      e_.line(fmt::format("const {0} last = first + {1} < {2} ? first + {1} : {2};", type(), share(), accesses()));
    }
    scope_.row = space_.variable("r", outer());
    e_.declare(scope_.row);
    q_ = space_.variable("q", std::max<int64_t>(1, accesses()));
    lane_ = space_.variable("k", l_.width);
  }

  // Loops over this thread's elements; `body` gets the position in the row. `before` and `after` run once per access.
  template <class Before, class Body, class After>
  void sweep(Before&& before, Body&& body, After&& after) {
    if (accesses() == 0) return;
    const int depth = e_.depth();
    if (l_.items > 0) {
      if (l_.items > 1) {
        e_.open(fmt::format("for (int n = 0; n < {}; ++n)", l_.items), false, "unroll");
        e_.line(fmt::format("const {} q = t + n * {};", type(), l_.group));
      } else {
        e_.open("", false);
        e_.line(fmt::format("const {} q = t;", type()));
      }
      if (int64_t{l_.items} * l_.group > accesses()) e_.open(fmt::format("if (q < {})", accesses()), true);
    } else {
      const bool long_loop = accesses() >= 4 * l_.group;
      e_.open(fmt::format("for ({} q = {}; q < {}; q += {})", type(), shared() ? "first + t" : "t", shared() ? "last" : std::to_string(accesses()), l_.group), false,
              !long_loop ? "" : l_.width > 1 ? "unroll 4" : "unroll 8");
    }
    e_.declare(q_);
    before();
    if (l_.width > 1) {
      e_.open(fmt::format("for (int k = 0; k < {}; ++k)", l_.width), false, "unroll");
      e_.declare(lane_);
      e_.set_lanes(lane_, l_.width);
    }
    const Index c = space_.add(space_.scale(q_, l_.width), lane_);
    body(c);
    if (l_.width > 1) {
      e_.clear_lanes();
      e_.close();
    }
    after();
    while (e_.depth() > depth) e_.close();
  }

  std::string place() const { return (l_.items > 1 ? "[n]" : "") + std::string(l_.width > 1 ? "[k]" : ""); }
  // Elements kept in registers by earlier sweeps are known here.
  void recall_cached(const Index& c) {
    for (const auto& [x, name] : cached_)
      e_.remember(Emitter::key_of(x, scope_.element(c_.graph.type_of(x).shape, c)), Val{name + place(), c_.graph.type_of(x).dtype, e_.depth()});
    for (const auto& [name, term] : kept_)
      e_.remember("kept " + name + Emitter::key_of(term.first, scope_.element(c_.graph.type_of(term.first).shape, c)), Val{term.second.text + place(), term.second.type, e_.depth()});
  }
  // An array of this thread's elements of a row.
  std::string declare_row(ir::DType type, const char* comment) {
    const std::string name = e_.fresh("row");
    e_.line(fmt::format("{} {}{}{};  // {}", compute_type(type), name, l_.items > 1 ? fmt::format("[{}]", l_.items) : "", l_.width > 1 ? fmt::format("[{}]", l_.width) : "", comment));
    return name;
  }

  // One sweep for all statistics of a stage; returns their accumulators.
  std::vector<std::string> accumulate(size_t stage) {
    std::vector<std::string> acc;
    std::vector<ValueRef> fresh;
    for (const Statistic& s : p_.stages[stage]) {
      acc.push_back(e_.fresh("acc"));
      e_.line(fmt::format("{} {} = {}::identity();  // {}", s.type, acc.back(), s.operation, s.comment));
      if (l_.items > 0 && p_.read_later(c_.graph, s.x, stage) && !cached_.count(s.x) && std::find(fresh.begin(), fresh.end(), s.x) == fresh.end()) fresh.push_back(s.x);
    }
    std::map<ValueRef, std::string> keep;
    for (const ValueRef x : fresh) keep[x] = declare_row(c_.graph.type_of(x).dtype, "the row, in registers");
    std::map<std::string, std::string> terms;
    for (const Statistic& s : p_.stages[stage])
      if (!s.keep.empty() && l_.items > 0 && !p_.full.empty()) terms[s.keep] = declare_row(s.dtype, "its terms");
    const auto together = [&](const Statistic& s) { return s.joins == Statistic::Joins::added_together; };
    std::vector<std::string> access(acc.size());  // terms of one access
    sweep(
        [&] {
          for (size_t i = 0; i < acc.size(); ++i) {
            if (!together(p_.stages[stage][i])) continue;
            access[i] = e_.fresh("part");
            e_.line(fmt::format("{} {}[{}];", compute_type(p_.stages[stage][i].dtype), access[i], l_.width));
          }
        },
        [&](const Index& c) {
          recall_cached(c);
          for (size_t i = 0; i < acc.size(); ++i) {
            const Statistic& s = p_.stages[stage][i];
            const Val v = e_.value(s.x, scope_.element(c_.graph.type_of(s.x).shape, c));
            if (const auto it = keep.find(s.x); it != keep.end() && !cached_.count(s.x)) {
              e_.line(fmt::format("{}{} = {};", it->second, place(), v.text));
              cached_[s.x] = it->second;
            }
            std::string term = s.term(scope_, e_.convert(v, s.dtype).text, e_.text(c));
            if (const auto it = terms.find(s.keep); it != terms.end()) {
              e_.line(fmt::format("{}{} = {};", it->second, place(), term));
              term = it->second + place();
            }
            if (together(s)) e_.line(fmt::format("{}[{}] = {};", access[i], l_.width > 1 ? "k" : "0", term));
            else if (s.joins == Statistic::Joins::added) e_.line(fmt::format("{}.add({});", acc[i], term));
            else e_.line(fmt::format("{0} = {1}::combine({0}, {2});", acc[i], s.operation, term));
          }
        },
        [&] {
          for (size_t i = 0; i < acc.size(); ++i)
            if (together(p_.stages[stage][i])) e_.line(fmt::format("{}.add({});", acc[i], access[i]));
        });
    for (const Statistic& s : p_.stages[stage])
      if (const auto it = terms.find(s.keep); it != terms.end()) kept_[s.keep] = {s.x, Val{it->second, s.dtype, 0}};
    for (size_t i = 0; i < acc.size(); ++i) acc[i] = exchanged(p_.stages[stage][i], acc[i]);
    return acc;
  }

  // Combination over the threads of the row, known to all of them.
  std::string exchanged(const Statistic& s, const std::string& acc) {
    if (!l_.columns && l_.group == 1) return acc;
    const std::string name = e_.fresh("all");
    std::string text;
    if (l_.columns) text = fmt::format("column_reduce<{}, {}>({}, reinterpret_cast<{}*>(words))", s.operation, kParts, acc, s.type);
    else if (l_.together()) text = fmt::format("block_reduce<{}>({}, reinterpret_cast<{}*>(words))", s.operation, acc, s.type);
    else text = fmt::format("warp_reduce<{}, {}>({})", s.operation, l_.group, acc);
    e_.line(fmt::format("const {} {} = {};", s.type, name, text));
    return name;
  }

  void finish(size_t stage, const std::vector<std::string>& totals) {
    for (size_t i = 0; i < totals.size(); ++i) {
      const Statistic& s = p_.stages[stage][i];
      s.finish(scope_, Val{totals[i], s.dtype, e_.depth()});
    }
  }

  std::string partial_pointer(size_t stage, size_t i) {
    const Partial& p = partials_[stage][i];
    const std::string name = fmt::format("partial{}_{}", stage, i);
    scratch_params_.add(fmt::format("{}{}* __restrict__ {}", role_ == Role::stage && stage == stage_ ? "" : "const ", p.type, name),
                        fmt::format("reinterpret_cast<{}*>(static_cast<char*>(scratch) + {})", p.type, p.offset));
    return name;
  }
  std::string row_text() { return outer() > 1 ? "r" : "0"; }

  void leave_partials(const std::vector<std::string>& totals) {
    e_.open(ragged() ? "if (t == 0 && active)" : "if (t == 0)", true);
    for (size_t i = 0; i < totals.size(); ++i)
      e_.line(fmt::format("{}[{} * {} + {}] = {};", partial_pointer(stage_, i), cast_int("blockIdx.x"), outer(), row_text(), totals[i]));
    e_.close();
  }
  void combine(size_t stage) {
    std::vector<std::string> totals;
    for (size_t i = 0; i < p_.stages[stage].size(); ++i) {
      const Statistic& s = p_.stages[stage][i];
      const std::string acc = e_.fresh("acc"), pointer = partial_pointer(stage, i);
      e_.line(fmt::format("{} {} = {}::identity();  // {}, from the blocks of the row", s.type, acc, s.operation, s.comment));
      e_.open(fmt::format("for (int n = static_cast<int>(t); n < {}; n += {})", l_.splits, l_.group), false);
      e_.line(fmt::format("{0} = {1}::combine({0}, {2}[n * {3} + {4}]);", acc, s.operation, pointer, outer(), row_text()));
      e_.close();
      totals.push_back(exchanged(s, acc));
    }
    finish(stage, totals);
  }

  // Results with one value per element.
  void store_elements() {
    if (p_.full.empty()) return;
    if (ragged()) e_.open("if (active)", true);
    struct Wide {
      std::string vec;
      Index base;
    };
    std::map<ValueRef, Wide> wide;
    sweep(
        [&] {
          if (l_.width == 1) return;
          for (ValueRef v : p_.full) {
            const Index base = address(v, space_.scale(q_, l_.width));
            const Index at = address(v, space_.add(space_.scale(q_, l_.width), lane_));
            bool aligned = space_.sub(at, lane_) == base && base.constant % l_.width == 0;
            for (const auto& [atom, k] : base.terms) aligned = aligned && k % l_.width == 0;
            if (!aligned) continue;
            wide[v] = {c_.parameter(v) + "_vec", base};
            e_.line(fmt::format("Vec<{}, {}> {};", cpp_type(c_.graph.type_of(v).dtype), l_.width, wide[v].vec));
          }
        },
        [&](const Index& c) {
          recall_cached(c);
          for (ValueRef v : p_.full) {
            const ir::TensorType& t = c_.graph.type_of(v);
            const std::string value = stored(e_, e_.value(v, scope_.element(t.shape, c)), t.dtype);
            if (const auto it = wide.find(v); it != wide.end()) e_.line(fmt::format("{}[k] = {};", it->second.vec, value));
            else e_.line(fmt::format("{}[{}] = {};", c_.parameter(v), e_.text(address(v, c)), value));
          }
        },
        [&] {
          for (const auto& [v, w] : wide) e_.line(fmt::format("store_vec({} + {}, {});", c_.parameter(v), e_.text(w.base), w.vec));
        });
    if (ragged()) e_.close();
  }
  Index address(ValueRef v, const Index& c) {
    const ir::Shape& shape = c_.graph.type_of(v).shape;
    return space_.ravel(scope_.element(shape, c), shape);
  }

  // Results with one value per row.
  void store_rows() {
    if (p_.single.empty()) return;
    std::string condition = "t == 0";
    if (!l_.columns && l_.group == 1) condition = "";
    if (ragged()) condition += condition.empty() ? "active" : " && active";
    if (shared()) condition += " && blockIdx.x == 0";
    if (!condition.empty()) e_.open(fmt::format("if ({})", condition), true);
    for (ValueRef v : p_.single) {
      const ir::TensorType& t = c_.graph.type_of(v);
      e_.line(fmt::format("{}[{}] = {};", c_.parameter(v), row_text(), stored(e_, e_.value(v, space_.unravel(scope_.row, t.shape)), t.dtype)));
    }
    if (!condition.empty()) e_.close();
  }

  KernelText text(const std::string& name) {
    KernelParams params;
    for (ValueRef v : c_.task.inputs)
      if (e_.used(v)) params.input(c_, v);
    if (role_ != Role::stage)
      for (ValueRef v : c_.task.outputs) params.output(c_, v);
    params.append(scratch_params_);
    const int64_t row_blocks = ceil_div(outer(), rows_per_block());
    // Stages share rows among blocks; so do results, unless there is one value per row only.
    const int64_t splits = !shared() || (role_ == Role::results && p_.full.empty()) ? 1 : ceil_div(accesses(), share());
    const std::string grid = shared() ? fmt::format("dim3({}, {})", splits, row_blocks) : std::to_string(row_blocks);
    KernelText out;
    out.device = fmt::format("{}__global__ void __launch_bounds__({}) {}({}) {{\n{}}}\n", description(), l_.block, name, params.declarations(), e_.body());
    out.launch = fmt::format("  {}<<<{}, {}, 0, stream>>>({});\n  STITCH_CHECK_LAUNCH();\n", name, grid, l_.block, params.arguments());
    return out;
  }
  std::string description() const {
    const std::string rows = fmt::format("{} rows of {} elements", p_.pattern.outer, p_.pattern.inner);
    std::string how = l_.columns ? fmt::format("a warp has {} neighbouring rows, {} warps share their elements", kColumns, kParts)
                      : l_.group == 1 ? std::string("one thread per row") : l_.together() ? fmt::format("a block of {} threads per row", l_.block) : fmt::format("{} lanes per row", l_.group);
    if (shared()) how += fmt::format(", {} blocks share a row", l_.splits);
    if (l_.items > 0) how += ", the row stays in registers";
    return fmt::format("// {}: {}.\n", rows, how);
  }

  const TaskContext& c_;
  const RowProgram& p_;
  const Layout& l_;
  const std::vector<std::vector<Partial>>& partials_;
  Role role_;
  size_t stage_;
  IndexSpace space_;
  Emitter e_;
  RowScope scope_;
  Index q_, lane_;
  std::map<ValueRef, std::string> cached_;                     // operands that stay in registers: their arrays
  std::map<std::string, std::pair<ValueRef, Val>> kept_;       // and terms, with the operand they belong to
  KernelParams scratch_params_;
};

Result<TaskSource> write_with(const TaskContext& c, const RowProgram& p, const Layout& l, bool& worthwhile) {
  TaskSource source;
  source.headers = {"reduce.cuh"};
  std::vector<std::vector<Partial>> partials;
  for (const auto& stage : p.stages) {
    partials.emplace_back();
    for (const Statistic& s : stage) {
      partials.back().push_back({s.type, source.scratch_bytes});
      if (l.splits > 1) source.scratch_bytes += static_cast<size_t>(ceil_div(l.splits * p.pattern.outer * kValueBytes, 256) * 256);
    }
  }
  std::string launches;
  const auto add = [&](RowKernel::Role role, size_t stage, const std::string& suffix) -> Status {
    RowKernel kernel(c, p, l, partials, role, stage);
    STITCH_TRY(const KernelText text, kernel.write(c.task.name + suffix));
    worthwhile = worthwhile && kernel.worthwhile();
    source.kernels += text.device + "\n";
    launches += text.launch;
    return {};
  };
  if (p.pattern.outer > 0) {
    if (l.splits == 1) {
      STITCH_CHECK_OK(add(RowKernel::Role::whole, 0, "_kernel"));
    } else {
      for (size_t s = 0; s < p.stages.size(); ++s) STITCH_CHECK_OK(add(RowKernel::Role::stage, s, fmt::format("_stage{}_kernel", s + 1)));
      STITCH_CHECK_OK(add(RowKernel::Role::results, 0, "_results_kernel"));
    }
  }
  source.kernels += fmt::format("{}{} {{\n{}  return nullptr;\n}}\n", task_comment(c, "reduction"), c.signature(), launches);
  return source;
}

bool takes(const TaskContext& c) { return RowProgram::of(c, true).has_value(); }

Result<TaskSource> write(const TaskContext& c) {
  const std::string position = needs_wide_index(c) ? "int64_t" : "int";
  std::optional<RowProgram> p = RowProgram::of(c, true, position);
  const LayoutChoice choice(c, *p);
  const int widest = choice.widest_access();
  for (const int width : {widest, 1}) {
    const Layout l = choice.choose(width);
    if (l.items == 0) p = RowProgram::of(c, false, position);  // passes over memory count
    bool worthwhile = true;
    auto source = write_with(c, *p, l, worthwhile);
    if (!source || worthwhile || width == 1) return source;
  }
  return fail(ErrorKind::internal, "no layout for task {}", c.task.name);
}

}  // namespace

Skill reduction_skill() { return {"reduction", takes, write}; }

}  // namespace stitch::code
