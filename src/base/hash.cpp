#include "base/hash.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace stitch {
namespace {
EVP_MD_CTX* ctx(void* p) { return static_cast<EVP_MD_CTX*>(p); }
}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  if (!context_ || EVP_DigestInit_ex(ctx(context_), EVP_sha256(), nullptr) != 1) throw std::runtime_error("SHA-256 is not available");
}
Sha256::~Sha256() { EVP_MD_CTX_free(ctx(context_)); }

Sha256& Sha256::raw(std::string_view bytes) {
  if (EVP_DigestUpdate(ctx(context_), bytes.data(), bytes.size()) != 1) throw std::runtime_error("SHA-256 failed");
  return *this;
}
Sha256& Sha256::field(std::string_view bytes) {
  const uint64_t n = bytes.size();
  raw({reinterpret_cast<const char*>(&n), sizeof n});
  return raw(bytes);
}
std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_DigestFinal_ex(ctx(context_), digest, &size) != 1) throw std::runtime_error("SHA-256 was finished twice");
  std::string out;
  for (unsigned int i = 0; i < size; ++i) out += fmt::format("{:02x}", digest[i]);
  return out;
}

std::string sha256_hex(std::string_view bytes) { return Sha256().raw(bytes).hex(); }

// In pieces: weights can be larger than memory.
Result<std::string> sha256_of_file(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail(ErrorKind::bad_input, "{} cannot be read: {}.", file.string(), std::strerror(errno));
  Sha256 hash;
  std::string buffer(1 << 20, '\0');
  ssize_t n;
  while ((n = ::read(fd, buffer.data(), buffer.size())) > 0 || (n < 0 && errno == EINTR))
    if (n > 0) hash.raw({buffer.data(), static_cast<size_t>(n)});
  const int error = errno;
  ::close(fd);
  if (n < 0) return fail(ErrorKind::bad_input, "{} cannot be read: {}.", file.string(), std::strerror(error));
  return hash.hex();
}

}  // namespace stitch
