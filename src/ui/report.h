#pragma once
// report.html: one self-contained page about a run, made from the files of its output folder alone (verdict.json,
// plan.json, events.jsonl, sources). Everything shown is escaped: candidate text is data.

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace stitch::ui {

std::string escape_html(std::string_view text);

// Writes OUT/report.html. Missing optional files are left out of the page; a missing plan or verdict is an error.
Status write_report(const std::filesystem::path& out);

}  // namespace stitch::ui
