#include <map>

#include "base/files.h"
#include "base/json_full.h"
#include "base/json_util.h"
#include "code/coder.h"
#include "code/literals.h"

namespace stitch::code {
namespace {

// One pass over the template: a value that looks like a mark stays what it is.
std::string fill(const std::string& text, const std::map<std::string, std::string>& values) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t open = text.find('@', at), close = open == text.npos ? text.npos : text.find('@', open + 1);
    if (close == text.npos) return out + text.substr(at);
    const auto value = values.find(text.substr(open + 1, close - open - 1));
    out += text.substr(at, open - at) + (value == values.end() ? "@" : value->second);
    at = value == values.end() ? open + 1 : close + 1;
  }
  return out;
}

}  // namespace

Result<std::string> write_model_new(const ir::Bundle& b, const std::string& reference_source, const std::string& program_folder) {
  STITCH_TRY(const std::string text, read_file(source_root() / "python/stitchcuda/templates/model_new.py.in"));
  Json random = Json::array(), names = Json::array();
  for (const ir::TensorInfo& i : b.inputs)
    if (i.random && i.generator)
      random.push_back({{"name", i.name}, {"kind", i.generator->kind}, {"a", i.generator->a}, {"b", i.generator->b}, {"shape", i.type.shape}, {"dtype", std::string(ir::name_of(i.type.dtype))}});
  for (const ir::TensorInfo& w : b.weights) names.push_back(w.name);
  const auto literal = [](const Json& j) { return python_string(dump(j, -1)); };
  // What holds the module: other kinds (an exported program) are no Python text.
  const bool has_source = !reference_source.empty() && (b.origin.kind == "kernelbench" || b.origin.kind == "callable") && b.origin.file.ends_with(".py");
  std::error_code ec;
  const auto absolute = [&](const fs::path& p) { return p.empty() ? std::string() : fs::absolute(p, ec).lexically_normal().string(); };
  return fill(text, {{"FOLDER", python_string(program_folder)},
                     {"BUNDLE", python_string(absolute(b.folder))},
                     {"NAME", python_string(b.name)},
                     {"MODE", python_string(b.mode)},
                     {"INPUT_SPEC", literal(b.input_spec)},
                     {"OUTPUT_SPEC", literal(b.output_spec)},
                     {"RANDOM_INPUTS", literal(random)},
                     {"WEIGHT_NAMES", literal(names)},
                     {"REFERENCE_FILE", python_string(has_source ? absolute(b.origin.file) : "")},
                     {"REFERENCE_NAME", python_string(b.origin.kind == "callable" ? b.name : "Model")},
                     {"REFERENCE_SOURCE", has_source ? python_string(reference_source) : "None"}});
}

}  // namespace stitch::code
