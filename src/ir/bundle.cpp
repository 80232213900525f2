#include "ir/bundle.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "base/files.h"
#include "base/json_util.h"
#include "ir/safetensors.h"

namespace stitch::ir {
namespace {

constexpr uintmax_t kMaxProgramJson = 256u << 20;

bool safe_case_name(const std::string& name) {
  return !name.empty() && name.size() <= 64 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; });
}

// A bundle may come from anyone: no member may lead out of its folder.
Result<fs::path> member(const fs::path& folder, const fs::path& relative) {
  const fs::path path = folder / relative;
  std::error_code ec;
  const fs::path real = fs::weakly_canonical(path, ec), root = fs::weakly_canonical(folder, ec);
  const auto inside = std::mismatch(root.begin(), root.end(), real.begin(), real.end()).first == root.end();
  if (ec || !inside) return fail(ErrorKind::bad_input, "{} leads out of the bundle; do not use this bundle.", path.string());
  return path;
}

Result<TensorInfo> read_info(const Json& j, const std::string& what) {
  TensorInfo info;
  STITCH_TRY(info.name, get_string(j, "name", what));
  STITCH_TRY(const std::string dtype, get_string(j, "dtype", what));
  const auto d = dtype_from_name(dtype);
  if (!d) return fail(ErrorKind::bad_input, "{} has the unknown dtype \"{}\".", what, dtype);
  info.type.dtype = *d;
  STITCH_TRY(const Json* shape, get_array(j, "shape", what));
  for (const Json& e : *shape) {
    if (!e.is_number_integer()) return fail(ErrorKind::bad_input, "{} has a shape that is no list of integers.", what);
    info.type.shape.push_back(e.get<int64_t>());
  }
  if (!j.contains("generator") || j.at("generator").is_null()) return info;
  const Json& g = j.at("generator");
  Generator gen;
  STITCH_TRY(gen.kind, get_string(g, "kind", what));
  if (gen.kind != "normal" && gen.kind != "uniform" && gen.kind != "randint" && gen.kind != "constant")
    return fail(ErrorKind::bad_input, "{} has the unknown generator \"{}\".", what, gen.kind);
  STITCH_TRY(gen.a, get_number(g, "a", what));
  STITCH_TRY(gen.b, get_number(g, "b", what));
  STITCH_TRY(const int64_t seed, get_integer(g, "seed", what));
  gen.seed = static_cast<uint64_t>(seed);
  info.generator = gen;
  return info;
}

Result<std::vector<TensorInfo>> read_infos(const Json& j, const char* key, const Graph& g, const std::vector<int32_t>& nodes, const std::string& file) {
  STITCH_TRY(const Json* list, get_array(j, key, file));
  std::vector<TensorInfo> out;
  for (const Json& entry : *list) {
    STITCH_TRY(TensorInfo info, read_info(entry, fmt::format("An entry of \"{}\" in {}", key, file)));
    out.push_back(std::move(info));
  }
  bool same = out.size() == nodes.size();
  for (size_t i = 0; same && i < out.size(); ++i) {
    const Node& n = g.nodes[static_cast<size_t>(nodes[i])];
    same = n.name == out[i].name && n.type() == out[i].type;
  }
  if (!same) return fail(ErrorKind::bad_input, "\"{}\" in {} does not agree with the graph; the bundle is damaged.", key, file);
  return out;
}

Result<Graph> read_graph(const Json& j, const std::string& file) {
  STITCH_TRY(const Json* lines, get_array(j, "graph", file));
  std::string text;
  for (const Json& l : *lines) {
    if (!l.is_string()) return fail(ErrorKind::bad_input, "\"graph\" in {} must be a list of lines.", file);
    text += l.get<std::string>() + "\n";
  }
  STITCH_TRY(Graph g, parse(text));
  STITCH_CHECK_OK(validate(g));
  return g;
}

Status check_version(const Json& j, const std::string& file) {
  STITCH_TRY(const std::string format, get_string(j, "format", file));
  STITCH_TRY(const int64_t version, get_integer(j, "version", file));
  if (format != "stitch") return fail(ErrorKind::bad_input, "{} is not a stitch bundle.", file);
  if (version > kBundleVersion)
    return fail(ErrorKind::unsupported, "{} was made by a newer version (bundle format {}, this program reads up to {}); update stitchcuda.", file, version, kBundleVersion);
  if (version < 1) return fail(ErrorKind::bad_input, "{} has the impossible bundle version {}.", file, version);
  return {};
}

Status read_origin(const Json& j, const std::string& file, Bundle& b) {
  STITCH_TRY(const Json* o, get_object(j, "origin", file));
  STITCH_TRY(b.origin.file, get_string(*o, "file", file));
  STITCH_TRY(b.origin.sha256, get_string(*o, "sha256", file));
  STITCH_TRY(b.origin.kind, get_string(*o, "kind", file));
  STITCH_TRY(b.origin.torch_version, get_string(*o, "torch_version", file));
  STITCH_TRY(b.origin.seed, get_integer(*o, "seed", file));
  STITCH_TRY(const Json* p, get_object(j, "precision", file));
  STITCH_TRY(b.precision.allow_tf32_matmul, get_bool(*p, "allow_tf32_matmul", file));
  STITCH_TRY(b.precision.allow_tf32_conv, get_bool(*p, "allow_tf32_conv", file));
  return {};
}

Json info_json(const TensorInfo& i) {
  Json j{{"name", i.name}, {"dtype", std::string(name_of(i.type.dtype))}, {"shape", i.type.shape}, {"generator", nullptr}};
  if (i.generator)
    j["generator"] = {{"kind", i.generator->kind}, {"a", i.generator->a}, {"b", i.generator->b}, {"seed", static_cast<int64_t>(i.generator->seed)}};
  return j;
}

Json bundle_json(const Bundle& b) {
  Json graph = Json::array(), inputs = Json::array(), weights = Json::array();
  const std::string text = print(b.graph);
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    graph.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  for (const TensorInfo& i : b.inputs) inputs.push_back(info_json(i));
  for (const TensorInfo& i : b.weights) weights.push_back(info_json(i));
  return Json{{"format", "stitch"},
              {"version", kBundleVersion},
              {"name", b.name},
              {"mode", b.mode},
              {"origin", {{"file", b.origin.file}, {"sha256", b.origin.sha256}, {"kind", b.origin.kind}, {"torch_version", b.origin.torch_version}, {"seed", b.origin.seed}}},
              {"precision", {{"allow_tf32_matmul", b.precision.allow_tf32_matmul}, {"allow_tf32_conv", b.precision.allow_tf32_conv}}},
              {"graph", graph},
              {"inputs", inputs},
              {"weights", weights},
              {"input_spec", b.input_spec},
              {"output_spec", b.output_spec},
              {"cases", b.case_names},
              {"has_weights", b.has_weights}};
}

Status check_finite(const Tensor& t, const std::string& file) {
  if (!is_floating(t.type.dtype)) return {};
  const int64_t n = numel(t.type.shape);
  for (int64_t i = 0; i < n; ++i)
    if (std::isnan(get(t, i)))
      return fail(ErrorKind::bad_input, "The weight \"{}\" in {} is NaN at element {}; repair the weights and capture again.", t.name, file, i);
  return {};
}

// A tensor of the file by name, with the type the graph wants.
Result<Tensor> take(const SafetensorsFile& f, const fs::path& file, const std::string& name, const TensorType& type) {
  const auto* entry = f.find(name);
  if (!entry) return fail(ErrorKind::bad_input, "{} lacks the tensor \"{}\"; the bundle is incomplete.", file.string(), name);
  if (!(entry->type == type))
    return fail(ErrorKind::bad_input, "\"{}\" in {} is {}, but the program needs {}.", name, file.string(), to_string(entry->type), to_string(type));
  return f.read(*entry);
}

}  // namespace

Result<Bundle> read_bundle(const fs::path& folder) {
  if (!fs::is_directory(folder)) return fail(ErrorKind::bad_input, "{} is not a .stitch folder; capture the program first.", folder.string());
  STITCH_TRY(const fs::path file, member(folder, "program.json"));
  std::error_code ec;
  if (fs::file_size(file, ec) > kMaxProgramJson && !ec) return fail(ErrorKind::bad_input, "{} is larger than a program can be.", file.string());
  STITCH_TRY(const std::string text, read_file(file));
  STITCH_TRY(const Json j, parse_json(text, file.string()));
  const std::string what = file.string();
  STITCH_CHECK_OK(check_version(j, what));
  Bundle b;
  b.folder = folder;
  STITCH_TRY(b.name, get_string(j, "name", what));
  STITCH_TRY(b.mode, get_string(j, "mode", what));
  STITCH_TRY(b.graph, read_graph(j, what));
  STITCH_TRY(b.inputs, read_infos(j, "inputs", b.graph, b.graph.inputs(), what));
  STITCH_TRY(b.weights, read_infos(j, "weights", b.graph, b.graph.weights(), what));
  STITCH_CHECK_OK(read_origin(j, what, b));
  b.input_spec = j.value("input_spec", Json());
  b.output_spec = j.value("output_spec", Json());
  STITCH_TRY(b.has_weights, get_bool(j, "has_weights", what));
  STITCH_TRY(const Json* cases, get_array(j, "cases", what));
  for (const Json& c : *cases) {
    if (!c.is_string() || !safe_case_name(c.get<std::string>()))
      return fail(ErrorKind::bad_input, "{} names a case that is no plain name; do not use this bundle.", what);
    b.case_names.push_back(c.get<std::string>());
  }
  if (b.has_weights && !b.weights.empty()) {
    STITCH_TRY(const fs::path weights, member(folder, "weights.safetensors"));
    STITCH_CHECK_OK(SafetensorsFile::open(weights).map([](const auto&) {}));
  }
  for (const std::string& c : b.case_names) {
    STITCH_TRY(const fs::path path, member(folder, fs::path("cases") / (c + ".safetensors")));
    STITCH_CHECK_OK(SafetensorsFile::open(path).map([](const auto&) {}));
  }
  return b;
}

Result<std::vector<Tensor>> read_weights(const Bundle& b) {
  std::vector<Tensor> out;
  if (b.weights.empty()) return out;
  if (!b.has_weights) return fail(ErrorKind::bad_input, "{} holds no weights; capture it again without --no-weights.", b.folder.string());
  STITCH_TRY(const fs::path file, member(b.folder, "weights.safetensors"));
  STITCH_TRY(const SafetensorsFile f, SafetensorsFile::open(file));
  for (const TensorInfo& w : b.weights) {
    STITCH_TRY(Tensor t, take(f, file, w.name, w.type));
    STITCH_CHECK_OK(check_finite(t, file.string()));
    out.push_back(std::move(t));
  }
  return out;
}

Result<Case> read_case(const Bundle& b, const std::string& name) {
  if (!safe_case_name(name)) return fail(ErrorKind::bad_input, "\"{}\" is not a case name.", name);
  STITCH_TRY(const fs::path file, member(b.folder, fs::path("cases") / (name + ".safetensors")));
  STITCH_TRY(const SafetensorsFile f, SafetensorsFile::open(file));
  Case c;
  c.name = name;
  for (const TensorInfo& i : b.inputs) {
    STITCH_TRY(Tensor t, take(f, file, "input." + i.name, i.type));
    t.name = i.name;
    c.inputs.push_back(std::move(t));
  }
  const bool has_expected = std::any_of(f.entries().begin(), f.entries().end(), [](const auto& e) { return e.name.rfind("expected.", 0) == 0; });
  if (!has_expected) return c;
  for (const Output& o : b.graph.outputs) {
    STITCH_TRY(Tensor t, take(f, file, "expected." + o.name, b.graph.type_of(o.value)));
    t.name = o.name;
    c.expected.push_back(std::move(t));
  }
  return c;
}

Status write_bundle(const fs::path& folder, const Bundle& b, const std::vector<Tensor>& weights, const std::vector<Case>& cases) {
  const fs::path target = fs::absolute(folder);
  const fs::path staging = target.parent_path() / fmt::format(".{}.tmp", target.filename().string());
  remove_tree(staging);
  const auto write_all = [&]() -> Status {
    STITCH_CHECK_OK(make_folder(staging / "cases"));
    Bundle full = b;
    full.has_weights = !weights.empty() || b.weights.empty();
    full.case_names.clear();
    if (!weights.empty()) STITCH_CHECK_OK(write_safetensors(staging / "weights.safetensors", weights));
    for (const Case& c : cases) {
      if (!safe_case_name(c.name)) return fail(ErrorKind::internal, "\"{}\" is not a case name.", c.name);
      std::vector<Tensor> tensors;
      for (size_t i = 0; i < c.inputs.size(); ++i) {
        tensors.push_back(c.inputs[i]);
        tensors.back().name = "input." + b.inputs[i].name;
      }
      for (size_t i = 0; i < c.expected.size(); ++i) {
        tensors.push_back(c.expected[i]);
        tensors.back().name = "expected." + b.graph.outputs[i].name;
      }
      STITCH_CHECK_OK(write_safetensors(staging / "cases" / (c.name + ".safetensors"), tensors));
      full.case_names.push_back(c.name);
    }
    return write_file(staging / "program.json", dump(bundle_json(full), 1) + "\n");
  };
  Status s = write_all();
  std::error_code ec;
  if (s) {
    remove_tree(target);
    fs::rename(staging, target, ec);
    if (ec) s = fail(ErrorKind::environment, "{} cannot be put in place: {}.", target.string(), ec.message());
  }
  if (!s) remove_tree(staging);
  return s;
}

}  // namespace stitch::ir
