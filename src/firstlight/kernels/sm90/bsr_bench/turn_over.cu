// turn.cu with a host function around it.
#include "call.h"

namespace turning {
#include "turn.cu"
}

cudaError_t turn_over(const unsigned short* from, unsigned short* to, int n, int cols, int pitch) {
  turning::TurnArgs args = {from, to, n, cols, pitch};
  dim3 grid((cols + turning::SIDE - 1) / turning::SIDE, (n + turning::SIDE - 1) / turning::SIDE);
  turning::turn<<<grid, turning::THREADS>>>(args);
  return cudaGetLastError();
}
