// Descriptor: an open file descriptor, closed at the end of the scope.
#pragma once

#include <unistd.h>

namespace tessera {

class Descriptor {
 public:
  /// Takes over `number`. A negative number, open()'s answer to an error, closes nothing.
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const { return number_; }

 private:
  int number_;
};

}  // namespace tessera
