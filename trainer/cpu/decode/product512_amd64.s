//go:build goexperiment.simd && amd64

#include "textflag.h"

// Each function multiplies rows of x with a tile of weights [depth, columns] and stores
// the sums, or adds them to what is there. One term after another is added in one chain
// for each sum.
//
// func tileRxC(x, w, out unsafe.Pointer, xStride, outStride, depth, add int)
// Strides are in bytes.

#define ARGS \
	MOVQ x+0(FP), SI \
	MOVQ w+8(FP), DI \
	MOVQ out+16(FP), BX \
	MOVQ xStride+24(FP), DX \
	MOVQ outStride+32(FP), R10 \
	MOVQ depth+40(FP), CX \
	MOVQ add+48(FP), R11

#define ROW4(x, a, b, c, d) \
	VBROADCASTSS x, Z28 \
	VFMADD231PS Z24, Z28, a \
	VFMADD231PS Z25, Z28, b \
	VFMADD231PS Z26, Z28, c \
	VFMADD231PS Z27, Z28, d

#define ROW2(x, a, b) \
	VBROADCASTSS x, Z28 \
	VFMADD231PS Z24, Z28, a \
	VFMADD231PS Z25, Z28, b

#define LOAD4 \
	VMOVUPS (DI), Z24 \
	VMOVUPS 64(DI), Z25 \
	VMOVUPS 128(DI), Z26 \
	VMOVUPS 192(DI), Z27 \
	ADDQ $256, DI

#define LOAD2 \
	VMOVUPS (DI), Z24 \
	VMOVUPS 64(DI), Z25 \
	ADDQ $128, DI

#define ZERO4(a, b, c, d) \
	VPXORD a, a, a \
	VPXORD b, b, b \
	VPXORD c, c, c \
	VPXORD d, d, d

#define ZERO2(a, b) \
	VPXORD a, a, a \
	VPXORD b, b, b

#define ADD4(a, b, c, d) \
	VADDPS (R9), a, a \
	VADDPS 64(R9), b, b \
	VADDPS 128(R9), c, c \
	VADDPS 192(R9), d, d \
	ADDQ R10, R9

#define ADD2(a, b) \
	VADDPS (R9), a, a \
	VADDPS 64(R9), b, b \
	ADDQ R10, R9

#define STORE4(a, b, c, d) \
	VMOVUPS a, (BX) \
	VMOVUPS b, 64(BX) \
	VMOVUPS c, 128(BX) \
	VMOVUPS d, 192(BX) \
	ADDQ R10, BX

#define STORE2(a, b) \
	VMOVUPS a, (BX) \
	VMOVUPS b, 64(BX) \
	ADDQ R10, BX

TEXT ·tile6x64(SB), NOSPLIT, $0-56
	ARGS
	LEAQ (DX)(DX*2), R8
	ADDQ SI, R8
	ZERO4(Z0, Z1, Z2, Z3)
	ZERO4(Z4, Z5, Z6, Z7)
	ZERO4(Z8, Z9, Z10, Z11)
	ZERO4(Z12, Z13, Z14, Z15)
	ZERO4(Z16, Z17, Z18, Z19)
	ZERO4(Z20, Z21, Z22, Z23)
loop:
	LOAD4
	ROW4((SI), Z0, Z1, Z2, Z3)
	ROW4((SI)(DX*1), Z4, Z5, Z6, Z7)
	ROW4((SI)(DX*2), Z8, Z9, Z10, Z11)
	ROW4((R8), Z12, Z13, Z14, Z15)
	ROW4((R8)(DX*1), Z16, Z17, Z18, Z19)
	ROW4((R8)(DX*2), Z20, Z21, Z22, Z23)
	ADDQ $4, SI
	ADDQ $4, R8
	DECQ CX
	JNZ loop
	TESTQ R11, R11
	JZ store
	MOVQ BX, R9
	ADD4(Z0, Z1, Z2, Z3)
	ADD4(Z4, Z5, Z6, Z7)
	ADD4(Z8, Z9, Z10, Z11)
	ADD4(Z12, Z13, Z14, Z15)
	ADD4(Z16, Z17, Z18, Z19)
	ADD4(Z20, Z21, Z22, Z23)
store:
	STORE4(Z0, Z1, Z2, Z3)
	STORE4(Z4, Z5, Z6, Z7)
	STORE4(Z8, Z9, Z10, Z11)
	STORE4(Z12, Z13, Z14, Z15)
	STORE4(Z16, Z17, Z18, Z19)
	STORE4(Z20, Z21, Z22, Z23)
	VZEROUPPER
	RET

TEXT ·tile4x64(SB), NOSPLIT, $0-56
	ARGS
	LEAQ (DX)(DX*2), R8
	ADDQ SI, R8
	ZERO4(Z0, Z1, Z2, Z3)
	ZERO4(Z4, Z5, Z6, Z7)
	ZERO4(Z8, Z9, Z10, Z11)
	ZERO4(Z12, Z13, Z14, Z15)
loop:
	LOAD4
	ROW4((SI), Z0, Z1, Z2, Z3)
	ROW4((SI)(DX*1), Z4, Z5, Z6, Z7)
	ROW4((SI)(DX*2), Z8, Z9, Z10, Z11)
	ROW4((R8), Z12, Z13, Z14, Z15)
	ADDQ $4, SI
	ADDQ $4, R8
	DECQ CX
	JNZ loop
	TESTQ R11, R11
	JZ store
	MOVQ BX, R9
	ADD4(Z0, Z1, Z2, Z3)
	ADD4(Z4, Z5, Z6, Z7)
	ADD4(Z8, Z9, Z10, Z11)
	ADD4(Z12, Z13, Z14, Z15)
store:
	STORE4(Z0, Z1, Z2, Z3)
	STORE4(Z4, Z5, Z6, Z7)
	STORE4(Z8, Z9, Z10, Z11)
	STORE4(Z12, Z13, Z14, Z15)
	VZEROUPPER
	RET

TEXT ·tile2x64(SB), NOSPLIT, $0-56
	ARGS
	ZERO4(Z0, Z1, Z2, Z3)
	ZERO4(Z4, Z5, Z6, Z7)
loop:
	LOAD4
	ROW4((SI), Z0, Z1, Z2, Z3)
	ROW4((SI)(DX*1), Z4, Z5, Z6, Z7)
	ADDQ $4, SI
	DECQ CX
	JNZ loop
	TESTQ R11, R11
	JZ store
	MOVQ BX, R9
	ADD4(Z0, Z1, Z2, Z3)
	ADD4(Z4, Z5, Z6, Z7)
store:
	STORE4(Z0, Z1, Z2, Z3)
	STORE4(Z4, Z5, Z6, Z7)
	VZEROUPPER
	RET

TEXT ·tile1x64(SB), NOSPLIT, $0-56
	ARGS
	ZERO4(Z0, Z1, Z2, Z3)
loop:
	LOAD4
	ROW4((SI), Z0, Z1, Z2, Z3)
	ADDQ $4, SI
	DECQ CX
	JNZ loop
	TESTQ R11, R11
	JZ store
	MOVQ BX, R9
	ADD4(Z0, Z1, Z2, Z3)
store:
	STORE4(Z0, Z1, Z2, Z3)
	VZEROUPPER
	RET

TEXT ·tile6x32(SB), NOSPLIT, $0-56
	ARGS
	LEAQ (DX)(DX*2), R8
	ADDQ SI, R8
	ZERO4(Z0, Z1, Z2, Z3)
	ZERO4(Z4, Z5, Z6, Z7)
	ZERO4(Z8, Z9, Z10, Z11)
loop:
	LOAD2
	ROW2((SI), Z0, Z1)
	ROW2((SI)(DX*1), Z2, Z3)
	ROW2((SI)(DX*2), Z4, Z5)
	ROW2((R8), Z6, Z7)
	ROW2((R8)(DX*1), Z8, Z9)
	ROW2((R8)(DX*2), Z10, Z11)
	ADDQ $4, SI
	ADDQ $4, R8
	DECQ CX
	JNZ loop
	TESTQ R11, R11
	JZ store
	MOVQ BX, R9
	ADD2(Z0, Z1)
	ADD2(Z2, Z3)
	ADD2(Z4, Z5)
	ADD2(Z6, Z7)
	ADD2(Z8, Z9)
	ADD2(Z10, Z11)
store:
	STORE2(Z0, Z1)
	STORE2(Z2, Z3)
	STORE2(Z4, Z5)
	STORE2(Z6, Z7)
	STORE2(Z8, Z9)
	STORE2(Z10, Z11)
	VZEROUPPER
	RET

TEXT ·tile2x32(SB), NOSPLIT, $0-56
	ARGS
	ZERO4(Z0, Z1, Z2, Z3)
loop:
	LOAD2
	ROW2((SI), Z0, Z1)
	ROW2((SI)(DX*1), Z2, Z3)
	ADDQ $4, SI
	DECQ CX
	JNZ loop
	TESTQ R11, R11
	JZ store
	MOVQ BX, R9
	ADD2(Z0, Z1)
	ADD2(Z2, Z3)
store:
	STORE2(Z0, Z1)
	STORE2(Z2, Z3)
	VZEROUPPER
	RET

TEXT ·tile1x32(SB), NOSPLIT, $0-56
	ARGS
	ZERO2(Z0, Z1)
loop:
	LOAD2
	ROW2((SI), Z0, Z1)
	ADDQ $4, SI
	DECQ CX
	JNZ loop
	TESTQ R11, R11
	JZ store
	MOVQ BX, R9
	ADD2(Z0, Z1)
store:
	STORE2(Z0, Z1)
	VZEROUPPER
	RET
