//go:build goexperiment.simd && amd64

#include "textflag.h"

// Each function multiplies rows of x with a tile of weights [depth, columns] and stores
// the sums, or adds them to what is there. One term after another is added in one chain
// for each sum. A tile of 64 or 32 columns is taken in groups of as many as there are
// registers for.
//
// func tile256ofRxC(x, w, out unsafe.Pointer, xStride, outStride, depth, add int)
// Strides are in bytes. R12 is the distance from row to row of the tile.

#define ARGS \
	MOVQ x+0(FP), SI \
	MOVQ w+8(FP), DI \
	MOVQ out+16(FP), BX \
	MOVQ xStride+24(FP), DX \
	MOVQ outStride+32(FP), R10 \
	MOVQ add+48(FP), R11 \
	MOVQ R12, R13

// BEGIN sets AX and R9 to the group's weights and to x, and CX to the number of terms.
#define BEGIN \
	MOVQ DI, AX \
	MOVQ SI, R9 \
	MOVQ depth+40(FP), CX

#define ZERO2(a, b) \
	VXORPS a, a, a \
	VXORPS b, b, b

#define ZERO4(a, b, c, d) \
	ZERO2(a, b) \
	ZERO2(c, d)

#define ROW2(x, a, b) \
	VBROADCASTSS x, Y14 \
	VFMADD231PS Y12, Y14, a \
	VFMADD231PS Y13, Y14, b

#define ROW4(x, a, b, c, d) \
	VBROADCASTSS x, Y14 \
	VFMADD231PS Y10, Y14, a \
	VFMADD231PS Y11, Y14, b \
	VFMADD231PS Y12, Y14, c \
	VFMADD231PS Y13, Y14, d

#define ADD2(a, b) \
	VADDPS (R9), a, a \
	VADDPS 32(R9), b, b \
	ADDQ R10, R9

#define ADD4(a, b, c, d) \
	VADDPS (R9), a, a \
	VADDPS 32(R9), b, b \
	VADDPS 64(R9), c, c \
	VADDPS 96(R9), d, d \
	ADDQ R10, R9

#define STORE2(a, b) \
	VMOVUPS a, (R9) \
	VMOVUPS b, 32(R9) \
	ADDQ R10, R9

#define STORE4(a, b, c, d) \
	VMOVUPS a, (R9) \
	VMOVUPS b, 32(R9) \
	VMOVUPS c, 64(R9) \
	VMOVUPS d, 96(R9) \
	ADDQ R10, R9

TEXT ·tile256of6x64(SB), NOSPLIT, $0-56
	MOVQ $256, R12
	JMP six<>(SB)

TEXT ·tile256of6x32(SB), NOSPLIT, $0-56
	MOVQ $128, R12
	JMP six<>(SB)

TEXT six<>(SB), NOSPLIT, $0-56
	ARGS
	LEAQ (DX)(DX*2), R8
	ADDQ SI, R8
group:
	BEGIN
	MOVQ R8, R15
	ZERO4(Y0, Y1, Y2, Y3)
	ZERO4(Y4, Y5, Y6, Y7)
	ZERO4(Y8, Y9, Y10, Y11)
loop:
	VMOVUPS (AX), Y12
	VMOVUPS 32(AX), Y13
	ROW2((R9), Y0, Y1)
	ROW2((R9)(DX*1), Y2, Y3)
	ROW2((R9)(DX*2), Y4, Y5)
	ROW2((R15), Y6, Y7)
	ROW2((R15)(DX*1), Y8, Y9)
	ROW2((R15)(DX*2), Y10, Y11)
	ADDQ R12, AX
	ADDQ $4, R9
	ADDQ $4, R15
	DECQ CX
	JNZ loop
	TESTQ R11, R11
	JZ store
	MOVQ BX, R9
	ADD2(Y0, Y1)
	ADD2(Y2, Y3)
	ADD2(Y4, Y5)
	ADD2(Y6, Y7)
	ADD2(Y8, Y9)
	ADD2(Y10, Y11)
store:
	MOVQ BX, R9
	STORE2(Y0, Y1)
	STORE2(Y2, Y3)
	STORE2(Y4, Y5)
	STORE2(Y6, Y7)
	STORE2(Y8, Y9)
	STORE2(Y10, Y11)
	ADDQ $64, BX
	ADDQ $64, DI
	SUBQ $64, R13
	JNZ group
	VZEROUPPER
	RET

TEXT ·tile256of4x64(SB), NOSPLIT, $0-56
	MOVQ $256, R12
	JMP four<>(SB)

TEXT ·tile256of4x32(SB), NOSPLIT, $0-56
	MOVQ $128, R12
	JMP four<>(SB)

TEXT four<>(SB), NOSPLIT, $0-56
	ARGS
	LEAQ (DX)(DX*2), R8
	ADDQ SI, R8
group:
	BEGIN
	MOVQ R8, R15
	ZERO4(Y0, Y1, Y2, Y3)
	ZERO4(Y4, Y5, Y6, Y7)
loop:
	VMOVUPS (AX), Y12
	VMOVUPS 32(AX), Y13
	ROW2((R9), Y0, Y1)
	ROW2((R9)(DX*1), Y2, Y3)
	ROW2((R9)(DX*2), Y4, Y5)
	ROW2((R15), Y6, Y7)
	ADDQ R12, AX
	ADDQ $4, R9
	ADDQ $4, R15
	DECQ CX
	JNZ loop
	TESTQ R11, R11
	JZ store
	MOVQ BX, R9
	ADD2(Y0, Y1)
	ADD2(Y2, Y3)
	ADD2(Y4, Y5)
	ADD2(Y6, Y7)
store:
	MOVQ BX, R9
	STORE2(Y0, Y1)
	STORE2(Y2, Y3)
	STORE2(Y4, Y5)
	STORE2(Y6, Y7)
	ADDQ $64, BX
	ADDQ $64, DI
	SUBQ $64, R13
	JNZ group
	VZEROUPPER
	RET

TEXT ·tile256of2x64(SB), NOSPLIT, $0-56
	MOVQ $256, R12
	JMP two<>(SB)

TEXT ·tile256of2x32(SB), NOSPLIT, $0-56
	MOVQ $128, R12
	JMP two<>(SB)

TEXT two<>(SB), NOSPLIT, $0-56
	ARGS
group:
	BEGIN
	ZERO4(Y0, Y1, Y2, Y3)
	ZERO4(Y4, Y5, Y6, Y7)
loop:
	VMOVUPS (AX), Y10
	VMOVUPS 32(AX), Y11
	VMOVUPS 64(AX), Y12
	VMOVUPS 96(AX), Y13
	ROW4((R9), Y0, Y1, Y2, Y3)
	ROW4((R9)(DX*1), Y4, Y5, Y6, Y7)
	ADDQ R12, AX
	ADDQ $4, R9
	DECQ CX
	JNZ loop
	TESTQ R11, R11
	JZ store
	MOVQ BX, R9
	ADD4(Y0, Y1, Y2, Y3)
	ADD4(Y4, Y5, Y6, Y7)
store:
	MOVQ BX, R9
	STORE4(Y0, Y1, Y2, Y3)
	STORE4(Y4, Y5, Y6, Y7)
	ADDQ $128, BX
	ADDQ $128, DI
	SUBQ $128, R13
	JNZ group
	VZEROUPPER
	RET

TEXT ·tile256of1x64(SB), NOSPLIT, $0-56
	MOVQ $256, R12
	ARGS
	BEGIN
	ZERO4(Y0, Y1, Y2, Y3)
	ZERO4(Y4, Y5, Y6, Y7)
loop:
	VBROADCASTSS (R9), Y14
	VFMADD231PS (AX), Y14, Y0
	VFMADD231PS 32(AX), Y14, Y1
	VFMADD231PS 64(AX), Y14, Y2
	VFMADD231PS 96(AX), Y14, Y3
	VFMADD231PS 128(AX), Y14, Y4
	VFMADD231PS 160(AX), Y14, Y5
	VFMADD231PS 192(AX), Y14, Y6
	VFMADD231PS 224(AX), Y14, Y7
	ADDQ R12, AX
	ADDQ $4, R9
	DECQ CX
	JNZ loop
	MOVQ $128, R10
	TESTQ R11, R11
	JZ store
	MOVQ BX, R9
	ADD4(Y0, Y1, Y2, Y3)
	ADD4(Y4, Y5, Y6, Y7)
store:
	MOVQ BX, R9
	STORE4(Y0, Y1, Y2, Y3)
	STORE4(Y4, Y5, Y6, Y7)
	VZEROUPPER
	RET

TEXT ·tile256of1x32(SB), NOSPLIT, $0-56
	MOVQ $128, R12
	ARGS
	BEGIN
	ZERO4(Y0, Y1, Y2, Y3)
loop:
	VBROADCASTSS (R9), Y14
	VFMADD231PS (AX), Y14, Y0
	VFMADD231PS 32(AX), Y14, Y1
	VFMADD231PS 64(AX), Y14, Y2
	VFMADD231PS 96(AX), Y14, Y3
	ADDQ R12, AX
	ADDQ $4, R9
	DECQ CX
	JNZ loop
	TESTQ R11, R11
	JZ store
	MOVQ BX, R9
	ADD4(Y0, Y1, Y2, Y3)
store:
	MOVQ BX, R9
	STORE4(Y0, Y1, Y2, Y3)
	VZEROUPPER
	RET
