/* FR_HD begins each function of the headers that are valid both as C17 and as CUDA C++. nvcc's
 * include path has another marker.h before this one (trainer/cuda/card). */
#ifndef FR_BASE_MARKER_H
#define FR_BASE_MARKER_H

#define FR_HD static inline

#endif
