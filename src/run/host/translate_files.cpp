#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>

#include "base/files.h"
#include "run/host/lexer.h"
#include "run/host/translate.h"

namespace stitch::host {
namespace {

class FileSet {
 public:
  FileSet(const std::vector<fs::path>& include_folders, const fs::path& output)
      : include_folders_(include_folders), output_(output) {}

  Result<fs::path> add(const fs::path& file) {
    std::error_code ignored;
    const fs::path real = fs::weakly_canonical(file, ignored);
    if (const auto known = done_.find(real); known != done_.end()) return known->second;
    const fs::path target = unique_target(real);
    done_[real] = target;  // before the includes: a cycle guarded by #pragma once is legal
    STITCH_TRY(const std::string source, read_file(file));
    STITCH_TRY(const std::string text, translate(source, fs::absolute(file).lexically_normal().string()));
    STITCH_TRY(const std::string linked, redirect_includes(text, real.parent_path()));
    STITCH_CHECK_OK(write_file(target, linked));
    return target;
  }

 private:
  fs::path unique_target(const fs::path& file) {
    // g++ takes .cu for a linker script; headers keep their name.
    std::string name = file.filename().string();
    if (file.extension() == ".cu") name += ".cpp";
    for (int n = 2; !names_.insert(name).second; ++n) name = fmt::format("{}_{}", n, file.filename().string());
    if (file.extension() == ".cu" && !name.ends_with(".cpp")) name += ".cpp";
    return output_ / name;
  }

  std::optional<fs::path> find(const std::string& name, bool quoted, const fs::path& includer) const {
    std::error_code ignored;
    if (quoted && fs::is_regular_file(includer / name, ignored)) return includer / name;
    for (const fs::path& folder : include_folders_)
      if (fs::is_regular_file(folder / name, ignored)) return folder / name;
    return {};
  }

  // Translated text starts with a #line directive, which the lexer passes over like any other.
  Result<std::string> redirect_includes(const std::string& text, const fs::path& includer) {
    const std::vector<Token> tokens = lex(text);
    const auto word = [&](size_t i) { return std::string_view(text).substr(tokens[i].begin, tokens[i].end - tokens[i].begin); };
    std::string out;
    size_t copied = 0;
    for (size_t i = 0; i + 2 < tokens.size(); ++i) {
      if (!tokens[i].in_directive || word(i) != "#" || word(i + 1) != "include") continue;
      const size_t begin = tokens[i + 2].begin;
      const bool quoted = tokens[i + 2].kind == TokenKind::literal;
      const size_t close = quoted ? tokens[i + 2].end - 1 : text.find('>', begin);
      if ((!quoted && text[begin] != '<') || close == std::string::npos) continue;  // #include MACRO
      const auto found = find(text.substr(begin + 1, close - begin - 1), quoted, includer);
      if (!found) continue;
      STITCH_TRY(const fs::path target, add(*found));
      out += text.substr(copied, begin - copied);
      out += "\"" + fs::absolute(target).string() + "\"";
      copied = close + 1;
    }
    return out + text.substr(copied);
  }

  const std::vector<fs::path>& include_folders_;
  fs::path output_;
  std::map<fs::path, fs::path> done_;
  std::set<std::string> names_;
};

}  // namespace

Result<std::vector<fs::path>> translate_files(const std::vector<fs::path>& files, const std::vector<fs::path>& include_folders,
                                              const fs::path& output_folder) {
  STITCH_CHECK_OK(make_folder(output_folder));
  FileSet set(include_folders, output_folder);
  std::vector<fs::path> out;
  for (const fs::path& file : files) {
    STITCH_TRY(fs::path target, set.add(file));
    out.push_back(std::move(target));
  }
  return out;
}

}  // namespace stitch::host
