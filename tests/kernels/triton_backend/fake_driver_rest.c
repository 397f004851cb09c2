/* Named by Triton's driver module, called by none of the tests. */
#define UNUSED(name) int name(void) { return 999; }
UNUSED(cuCtxGetLimit)
UNUSED(cuCtxSetLimit)
UNUSED(cuDeviceGetAttribute)
UNUSED(cuFuncGetAttribute)
UNUSED(cuFuncSetAttribute)
UNUSED(cuFuncSetCacheConfig)
UNUSED(cuModuleGetFunction)
UNUSED(cuModuleLoadData)
UNUSED(cuOccupancyMaxActiveClusters)
