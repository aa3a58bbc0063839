#include "sharding/comm/threads/rendezvous.h"

#include "runtime/check.h"
#include "runtime/spin.h"
#include "sharding/comm/call.h"

namespace tessera {
namespace {

/// Asks for a while whether `done`, before the caller goes to sleep: most ranks arrive within
/// microseconds of each other.
template <typename Done>
void poll(std::unique_lock<std::mutex>& lock, const Done& done) {
  lock.unlock();
  spin_until(done);
  lock.lock();
}

}  // namespace

Rendezvous::Rendezvous(std::vector<int> members, const Deadline& deadline)
    : deadline_(deadline), members_(std::move(members)), here_(members_.size(), false) {}

void Rendezvous::open(int rank, const std::string& call) {
  std::unique_lock lock(mutex_);
  if (arrive(lock, rank, call)) reading_ = ranks();
}

void Rendezvous::halfway(int rank, const std::string& call) {
  std::unique_lock lock(mutex_);
  arrive(lock, rank, call);
}

void Rendezvous::close() {
  std::unique_lock lock(mutex_);
  if (--reading_ == 0) return changed_.notify_all();
  poll(lock, [&] { return reading_ == 0; });
  changed_.wait(lock, [&] { return reading_ == 0; });
}

void Rendezvous::abort(const std::string& reason) {
  std::vector<std::weak_ptr<Rendezvous>> children;
  {
    const std::lock_guard lock(mutex_);
    if (!aborted_) aborted_ = reason;
    children = children_;
  }
  changed_.notify_all();
  for (const auto& child : children) {
    if (const auto rendezvous = child.lock()) rendezvous->abort(reason);
  }
}

std::optional<std::string> Rendezvous::aborted() {
  const std::lock_guard lock(mutex_);
  return aborted_;
}

void Rendezvous::add_child(const std::shared_ptr<Rendezvous>& child) {
  std::optional<std::string> aborted;
  {
    const std::lock_guard lock(mutex_);
    children_.push_back(child);
    aborted = aborted_;
  }
  if (aborted) child->abort(*aborted);
}

bool Rendezvous::arrive(std::unique_lock<std::mutex>& lock, int rank, const std::string& call) {
  if (aborted_) throw Error(*aborted_);
  const std::uint64_t round = round_;
  here_[static_cast<std::size_t>(rank)] = true;
  if (++arrived_ == ranks()) {
    arrived_ = 0;
    here_.assign(here_.size(), false);
    ++round_;
    changed_.notify_all();
    return true;
  }
  poll(lock, [&] { return round_ != round; });
  deadline_.clock().wait(changed_, lock, deadline_.end(),
                         [&] { return round_ != round || aborted_; });
  if (round_ != round) return false;
  if (!aborted_) {
    aborted_ = fmt::format("rank {} waited {} ms in {} for {}", world_rank(rank), deadline_.count(),
                           call, list_ranks(missing()));
    changed_.notify_all();
  }
  throw Error(*aborted_);
}

std::vector<int> Rendezvous::missing() const {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < here_.size(); ++i) {
    if (!here_[i]) ranks.push_back(members_[i]);
  }
  return ranks;
}

}  // namespace tessera
