// Namespaces without bubblewrap: a private root that shows only the folders a candidate needs.
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "worker/worker.h"

namespace stitch::worker {
namespace {

std::string reason(const std::string& what) { return what + ": " + std::strerror(errno); }

bool write_text(const char* file, const std::string& text) {
  const int fd = open(file, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool ok = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  return ok;
}

void make_path(const std::string& path) {
  for (size_t at = 1; at != std::string::npos && at < path.size();) {
    at = path.find('/', at);
    mkdir(path.substr(0, at).c_str(), 0755);
    if (at != std::string::npos) ++at;
  }
}

[[noreturn]] void mirror(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  if (WIFSIGNALED(status)) _exit(128 + WTERMSIG(status));
  _exit(WEXITSTATUS(status));
}

std::string bind_one(const Bind& bind) {
  const std::string old = "/old" + bind.path, parent = bind.path.substr(0, bind.path.rfind('/'));
  struct stat info{};
  if (lstat(old.c_str(), &info) == 0 && S_ISLNK(info.st_mode)) {  // /lib -> usr/lib
    char target[4096];
    const ssize_t n = readlink(old.c_str(), target, sizeof target - 1);
    if (n <= 0) return "";
    target[n] = 0;
    if (!parent.empty()) make_path(parent);
    return symlink(target, bind.path.c_str()) != 0 && errno != EEXIST ? reason("link " + bind.path) : "";
  }
  if (stat(old.c_str(), &info) != 0) return "";  // an optional folder that this machine lacks
  if (S_ISDIR(info.st_mode)) {
    make_path(bind.path);
  } else {
    if (!parent.empty()) make_path(parent);
    const int fd = open(bind.path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (fd >= 0) close(fd);
  }
  if (mount(old.c_str(), bind.path.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0) return reason("bind " + bind.path);
  if (bind.writable_device) return "";
  // Flags that an outer mount has locked must be repeated or the kernel refuses the change.
  const unsigned long locked[] = {0ul, MS_NODEV, MS_NOSUID | MS_NODEV, MS_NOSUID | MS_NODEV | MS_NOEXEC};
  for (unsigned long extra : locked)
    if (mount(nullptr, bind.path.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY | extra, nullptr) == 0) return "";
  return reason("read-only " + bind.path);
}

std::string build_root() {
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return reason("private mounts");
  const std::string root = "/tmp";
  if (mount("tmpfs", root.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "size=256m,mode=755") != 0) return reason("tmpfs");
  for (const char* folder : {"/tmp", "/proc", "/dev", "/dev/shm", "/old"}) mkdir((root + folder).c_str(), 0755);
  if (syscall(SYS_pivot_root, root.c_str(), (root + "/old").c_str()) != 0) return reason("pivot_root");
  if (chdir("/") != 0) return reason("chdir");
  return "";
}

}  // namespace

std::string enter_namespaces(const std::vector<Bind>& binds) {
  const uid_t uid = getuid();
  const gid_t gid = getgid();
  const int kinds = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
  if (unshare(CLONE_NEWUSER | kinds) == 0) {
    write_text("/proc/self/setgroups", "deny");
    if (!write_text("/proc/self/uid_map", std::to_string(uid) + " " + std::to_string(uid) + " 1") ||
        !write_text("/proc/self/gid_map", std::to_string(gid) + " " + std::to_string(gid) + " 1"))
      return reason("user mapping");
  } else if (unshare(kinds) != 0) {
    return reason("unshare");
  }
  // Twice: the first child is PID 1 of the namespace, which ignores most signals and reaps; the second is the worker.
  for (int level = 0; level < 2; ++level) {
    const pid_t child = fork();
    if (child < 0) return reason("fork");
    if (child > 0) mirror(child);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
  }
  if (auto error = build_root(); !error.empty()) return error;
  // Everything is now seen below /old: bind the wanted parts to their usual names, then drop /old.
  for (const auto& bind : binds)
    if (auto error = bind_one(bind); !error.empty()) return error;
  if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0 &&
      mount("/old/proc", "/proc", nullptr, MS_BIND | MS_REC, nullptr) != 0)
    return reason("proc");
  if (umount2("/old", MNT_DETACH) != 0) return reason("detach old root");
  rmdir("/old");
  mount(nullptr, "/", nullptr, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV, nullptr);
  return "";
}

std::string drop_privileges() {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return reason("no_new_privs");
  for (int cap = 0; cap < 64; ++cap) prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  if (syscall(SYS_capset, &header, none) != 0) return reason("capset");
  return "";
}

}  // namespace stitch::worker
