// 16 bytes, one load.
const int PACK = 16 / int(sizeof(real));

struct __align__(16) Pack {
    real values[PACK];
};
