#pragma once
// What a step left on disk, remembered so that a resumed run notices when files were deleted or edited in between. Size and time of the last
// change stand for the content: weights may have gigabytes.

#include <filesystem>
#include <string>
#include <vector>

namespace stitch::loop {

// JSON text; folders stand for all files below them. Paths that do not exist are left out.
std::string stamps_of(const std::vector<std::filesystem::path>&);

// What is no longer as `stamps` say: "plan.json is missing", "kernels.cu was changed"; "" if all stands.
std::string change_since(const std::string& stamps);

}  // namespace stitch::loop
