// Pointwise kernels that read an operand across its layout, as after a permute that moves the innermost dim. Read element by element,
// neighbouring threads would touch memory far apart; here a block fetches a square tile along the operand's innermost dim, turns it
// in shared memory and writes the result along its own.
#include <algorithm>
#include <optional>

#include "code/skills/common.h"
#include "code/skills/skills.h"

namespace stitch::code {
namespace {

using ir::ValueRef;

constexpr int kTile = 32, kRows = 8;            // a block is 32 x 8 threads, each with four elements of the tile
constexpr int64_t kLeastElements = 1 << 18;     // below, caches make up for the pattern
constexpr size_t kMostTiles = 4;

// Neighbouring dims of the result taken as one. (28, 28, 192) as (784, 192) has tiles where no single dim is long enough.
struct Merged {
  ir::Shape shape;                 // extents after merging
  std::vector<ir::Shape> parts;    // the result's own extents in each
};

// All ways to merge, the fewest merges first; the result as it is comes first.
std::vector<Merged> mergings(const ir::Shape& shape) {
  std::vector<Merged> out;
  const size_t gaps = shape.size() - 1;
  for (uint32_t joined = 0; joined + 1 < (1u << gaps); ++joined) {  // bit d: dims d and d + 1 are one; never all of them
    Merged m;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (d > 0 && (joined >> (d - 1)) & 1u) {
        m.shape.back() *= shape[d];
        m.parts.back().push_back(shape[d]);
      } else {
        m.shape.push_back(shape[d]);
        m.parts.push_back({shape[d]});
      }
    }
    out.push_back(std::move(m));
  }
  std::stable_sort(out.begin(), out.end(), [](const Merged& a, const Merged& b) { return a.shape.size() > b.shape.size(); });
  return out;
}

// One coordinate variable per (merged) dim of the results. They are the first variables of every index space made here, so addresses that
// are linear in them compare equal across spaces.
class Turned {
 public:
  Turned(const TaskContext& c, Merged merged) : c_(c), shape_(std::move(merged.shape)), parts_(std::move(merged.parts)) {}

  Result<TaskSource> write() {
    if (shape_.back() < kTile || !find_tiles()) return fail(ErrorKind::unsupported, "no operand is read across its layout");
    IndexSpace space;
    Emitter e(c_.graph, space, needs_wide_index(c_));
    set_up(e, c_);
    const Coords at = coordinates(e, space);
    preamble(e);
    fetch(e, at);
    e.line("__syncthreads();");
    store(e, space, at);
    if (e.refused()) return fail(ErrorKind::unsupported, "{}", e.refusal());
    return finish(e);
  }

 private:
  size_t last() const { return shape_.size() - 1; }
  static std::string name_of(size_t d) { return "c" + std::to_string(d); }

  Coords coordinates(Emitter& e, IndexSpace& space) const {
    Coords at;
    for (size_t d = 0; d < shape_.size(); ++d) {
      e.reserve(name_of(d));
      at.push_back(space.variable(name_of(d), shape_[d]));
    }
    return at;
  }

  // The coordinates of the result's own dims.
  Coords own_coordinates(IndexSpace& space, const Coords& at) const {
    Coords own;
    for (size_t d = 0; d < shape_.size(); ++d) {
      const Coords parts = space.unravel(at[d], parts_[d]);
      own.insert(own.end(), parts.begin(), parts.end());
    }
    return own;
  }

  // Coefficient of a coordinate in an address that is linear in all of them; nothing if it is not.
  std::optional<std::vector<int64_t>> strides(const IndexSpace& space, const Index& address) const {
    std::vector<int64_t> out(shape_.size(), 0);
    for (const auto& [id, k] : address.terms) {
      const auto& atom = space.atom(id);
      if (atom.kind != IndexSpace::Atom::Kind::variable || atom.name[0] != 'c') return std::nullopt;
      out[static_cast<size_t>(std::stoi(atom.name.substr(1)))] = k;
    }
    return out;
  }

  // Which dim to turn against the innermost one, and which loads cross it.
  bool find_tiles() {
    IndexSpace space;
    Emitter e(c_.graph, space, needs_wide_index(c_));
    set_up(e, c_);
    const Coords at = coordinates(e, space);
    for (const Index& i : at) e.declare(i);
    std::vector<int> votes(shape_.size(), 0);
    std::vector<std::pair<std::pair<ValueRef, Index>, size_t>> crossing;
    e.set_load_hook([&](ValueRef v, const Index& address) -> std::optional<std::string> {
      const auto s = strides(space, address);
      if (!s || (*s)[last()] == 1 || ir::numel(c_.graph.type_of(v).shape) * 2 < ir::numel(shape_)) return std::nullopt;
      for (size_t d = 0; d < last(); ++d) {
        if ((*s)[d] != 1 || shape_[d] < kTile || (*s)[last()] == 0) continue;
        ++votes[d];
        crossing.push_back({{v, address}, d});
      }
      return std::nullopt;
    });
    const Coords own = own_coordinates(space, at);
    for (ValueRef v : c_.task.outputs) e.value(v, own);
    if (crossing.empty() || e.refused()) return false;
    turned_ = static_cast<size_t>(std::max_element(votes.begin(), votes.end()) - votes.begin());
    for (const auto& [load, d] : crossing)
      if (d == turned_ && tiles_.size() < kMostTiles && std::find(tiles_.begin(), tiles_.end(), load) == tiles_.end()) tiles_.push_back(load);
    return !tiles_.empty();
  }

  int64_t tiles_along(size_t d) const { return ceil_div(shape_[d], kTile); }
  int64_t blocks() const {
    int64_t n = 1;
    for (size_t d = 0; d < shape_.size(); ++d) n *= d == last() || d == turned_ ? tiles_along(d) : shape_[d];
    return n;
  }

  // Shared tiles, this thread's place, and the block's place in the result.
  void preamble(Emitter& e) const {
    for (size_t i = 0; i < tiles_.size(); ++i)
      e.line(fmt::format("__shared__ {} tile{}[{}][{}];  // one column more: no bank conflicts", cpp_type(c_.graph.type_of(tiles_[i].first).dtype), i, kTile, kTile + 1));
    e.line(fmt::format("const int tile_x = static_cast<int>(threadIdx.x) % {0}, tile_y = static_cast<int>(threadIdx.x) / {0};", kTile));
    e.line(fmt::format("{} tile_place = static_cast<{}>(blockIdx.x);", e.index_type(), e.index_type()));
    for (size_t i = shape_.size(); i-- > 0;) {
      const bool tiled = i == last() || i == turned_;
      const int64_t n = tiled ? tiles_along(i) : shape_[i];
      const std::string name = tiled ? fmt::format("tile_first{}", i) : name_of(i);
      e.line(fmt::format("const {} {} = tile_place % {}{};", e.index_type(), name, n, tiled ? fmt::format(" * {}", kTile) : ""));
      if (i > 0) e.line(fmt::format("tile_place /= {};", n));
    }
  }

  // Loops over the thread's elements of the tile, `across` along x; the body runs where the element exists.
  template <class Body>
  void elements(Emitter& e, const Coords& at, size_t across, size_t along, Body&& body) const {
    e.open(fmt::format("for (int tile_n = tile_y; tile_n < {}; tile_n += {})", kTile, kRows), false, "unroll");
    e.line(fmt::format("const {} {} = tile_first{} + tile_x;", e.index_type(), name_of(across), across));
    e.line(fmt::format("const {} {} = tile_first{} + tile_n;", e.index_type(), name_of(along), along));
    std::string inside;
    for (const size_t d : {across, along})
      if (shape_[d] % kTile != 0) inside += fmt::format("{}{} < {}", inside.empty() ? "" : " && ", name_of(d), shape_[d]);
    if (!inside.empty()) e.open(fmt::format("if ({})", inside), true);
    e.declare(at[across]);
    e.declare(at[along]);
    body();
    if (!inside.empty()) e.close();
    e.close();
  }

  // The tile as it lies in the operand: x runs along its innermost dim.
  void fetch(Emitter& e, const Coords& at) const {
    elements(e, at, turned_, last(), [&] {
      for (size_t i = 0; i < tiles_.size(); ++i) e.line(fmt::format("tile{}[tile_n][tile_x] = {}[{}];", i, c_.parameter(tiles_[i].first), e.text(tiles_[i].second)));
    });
  }
  void store(Emitter& e, IndexSpace& space, const Coords& at) const {
    e.set_load_hook([this](ValueRef v, const Index& address) -> std::optional<std::string> {
      const auto tile = std::find(tiles_.begin(), tiles_.end(), std::pair{v, address});
      if (tile == tiles_.end()) return std::nullopt;
      return fmt::format("tile{}[tile_x][tile_n]", tile - tiles_.begin());
    });
    elements(e, at, last(), turned_, [&] {
      const std::string where = e.text(space.ravel(at, shape_));
      const Coords own = own_coordinates(space, at);
      for (ValueRef v : c_.task.outputs) {
        const std::string value = stored(e, e.value(v, own), c_.graph.type_of(v).dtype);
        e.line(fmt::format("{}[{}] = {};", c_.parameter(v), where, value));
      }
    });
  }

  Result<TaskSource> finish(Emitter& e) const {
    KernelParams params;
    for (ValueRef v : c_.task.inputs)
      if (e.used(v)) params.input(c_, v);
    for (ValueRef v : c_.task.outputs) params.output(c_, v);
    const std::string name = c_.task.name + "_kernel";
    TaskSource source;
    source.kernels = fmt::format("// Tiles of {0} x {0} over dims {1} and {2} of the result as {5}.\n__global__ void __launch_bounds__({3}) {4}({6}) {{\n{7}}}\n\n", kTile, turned_, last(),
                                 kTile * kRows, name, ir::to_string(shape_), params.declarations(), e.body());
    source.kernels += fmt::format("{}{} {{\n  {}<<<{}, {}, 0, stream>>>({});\n  STITCH_CHECK_LAUNCH();\n  return nullptr;\n}}\n", task_comment(c_, "transpose"), c_.signature(), name,
                                  blocks(), kTile * kRows, params.arguments());
    return source;
  }

  const TaskContext& c_;
  ir::Shape shape_;
  std::vector<ir::Shape> parts_;
  size_t turned_ = 0;
  std::vector<std::pair<ValueRef, Index>> tiles_;
};

bool takes(const TaskContext& c) {
  const auto shape_of = [&](ValueRef v) { return c.graph.type_of(v).shape; };
  if (c.task.outputs.empty()) return false;
  const ir::Shape shape = shape_of(c.task.outputs.front());
  return shape.size() >= 2 && shape.size() <= 6 && ir::numel(shape) >= kLeastElements &&
         std::all_of(c.task.outputs.begin(), c.task.outputs.end(), [&](ValueRef v) { return shape_of(v) == shape; }) &&
         std::all_of(c.task.nodes.begin(), c.task.nodes.end(), [&](int32_t n) { return is_inline(c.graph.nodes[static_cast<size_t>(n)]); });
}
// Only a permute moves the innermost dim; without one there is nothing to gain from merging.
Result<TaskSource> write(const TaskContext& c) {
  const bool permutes = std::any_of(c.task.nodes.begin(), c.task.nodes.end(), [&](int32_t n) { return c.graph.nodes[static_cast<size_t>(n)].op_name() == "permute"; });
  const ir::Shape& shape = c.graph.type_of(c.task.outputs.front()).shape;
  for (Merged& m : mergings(shape)) {
    const bool as_it_is = m.shape.size() == shape.size();
    if (!as_it_is && !permutes) break;
    if (auto source = Turned(c, std::move(m)).write()) return source;
  }
  return fail(ErrorKind::unsupported, "no operand is read across its layout");
}

}  // namespace

Skill transpose_skill() { return {"transpose", takes, write}; }

}  // namespace stitch::code
