//go:build goexperiment.simd && amd64

#include "textflag.h"

// func mulRx16(x, y, out unsafe.Pointer, xRow, xStep, yStep, outRow, depth, add int)
// multiplies R rows of x with 16 columns of y and stores the sums, or adds them to what is
// there. Distances are in bytes.

#define ARGS \
	MOVQ x+0(FP), SI \
	MOVQ y+8(FP), DI \
	MOVQ out+16(FP), BX \
	MOVQ xRow+24(FP), DX \
	MOVQ xStep+32(FP), AX \
	MOVQ yStep+40(FP), R12 \
	MOVQ outRow+48(FP), R10 \
	MOVQ depth+56(FP), CX \
	MOVQ add+64(FP), R11

#define LOAD \
	VMOVUPS (DI), Y12 \
	VMOVUPS 32(DI), Y13 \
	ADDQ R12, DI

#define ROW(x, a, b) \
	VBROADCASTSS x, Y14 \
	VFMADD231PS Y12, Y14, a \
	VFMADD231PS Y13, Y14, b

#define ZERO(a, b) \
	VXORPS a, a, a \
	VXORPS b, b, b

#define ADD(a, b) \
	VADDPS (R9), a, a \
	VADDPS 32(R9), b, b \
	ADDQ R10, R9

#define STORE(a, b) \
	VMOVUPS a, (BX) \
	VMOVUPS b, 32(BX) \
	ADDQ R10, BX

TEXT ·mul6x16(SB), NOSPLIT, $0-72
	ARGS
	LEAQ (DX)(DX*2), R8
	ADDQ SI, R8
	ZERO(Y0, Y1)
	ZERO(Y2, Y3)
	ZERO(Y4, Y5)
	ZERO(Y6, Y7)
	ZERO(Y8, Y9)
	ZERO(Y10, Y11)
loop:
	LOAD
	ROW((SI), Y0, Y1)
	ROW((SI)(DX*1), Y2, Y3)
	ROW((SI)(DX*2), Y4, Y5)
	ROW((R8), Y6, Y7)
	ROW((R8)(DX*1), Y8, Y9)
	ROW((R8)(DX*2), Y10, Y11)
	ADDQ AX, SI
	ADDQ AX, R8
	DECQ CX
	JNZ loop
	TESTQ R11, R11
	JZ store
	MOVQ BX, R9
	ADD(Y0, Y1)
	ADD(Y2, Y3)
	ADD(Y4, Y5)
	ADD(Y6, Y7)
	ADD(Y8, Y9)
	ADD(Y10, Y11)
store:
	STORE(Y0, Y1)
	STORE(Y2, Y3)
	STORE(Y4, Y5)
	STORE(Y6, Y7)
	STORE(Y8, Y9)
	STORE(Y10, Y11)
	VZEROUPPER
	RET

TEXT ·mul1x16(SB), NOSPLIT, $0-72
	ARGS
	ZERO(Y0, Y1)
loop:
	LOAD
	ROW((SI), Y0, Y1)
	ADDQ AX, SI
	DECQ CX
	JNZ loop
	TESTQ R11, R11
	JZ store
	MOVQ BX, R9
	ADD(Y0, Y1)
store:
	STORE(Y0, Y1)
	VZEROUPPER
	RET

// The constants of the backend's e^x, after Cephes: limit, log2E, 0.5, ln2High, ln2Low, exp7 to exp2, 1, and
// the bias of exponents.
DATA expConstants<>+0(SB)/4, $0x42b00f34 // limit
DATA expConstants<>+4(SB)/4, $0x3fb8aa3b // log2E
DATA expConstants<>+8(SB)/4, $0x3f000000 // half
DATA expConstants<>+12(SB)/4, $0x3f318000 // ln2High
DATA expConstants<>+16(SB)/4, $0xb95e8083 // ln2Low
DATA expConstants<>+20(SB)/4, $0x39506967 // exp7
DATA expConstants<>+24(SB)/4, $0x3ab743ce // exp6
DATA expConstants<>+28(SB)/4, $0x3c088908 // exp5
DATA expConstants<>+32(SB)/4, $0x3d2aa9c1 // exp4
DATA expConstants<>+36(SB)/4, $0x3e2aaaaa // exp3
DATA expConstants<>+40(SB)/4, $0x3f000000 // exp2
DATA expConstants<>+44(SB)/4, $0x3f800000 // one
DATA expConstants<>+48(SB)/4, $127
DATA expConstants<>+52(SB)/4, $0xc2b00f34 // -limit
GLOBL expConstants<>(SB), RODATA|NOPTR, $56

// func exponentials(row, sums unsafe.Pointer, vectors int, most float32)
// turns each number x of full vectors into e^(x-most), with the operations of
// the backend, and stores the sum of each lane.
TEXT ·exponentials(SB), NOSPLIT, $0-28
	MOVQ row+0(FP), DI
	MOVQ sums+8(FP), BX
	MOVQ vectors+16(FP), CX
	VBROADCASTSS most+24(FP), Y15
	VBROADCASTSS expConstants<>+52(SB), Y14
	VBROADCASTSS expConstants<>+0(SB), Y13
	VBROADCASTSS expConstants<>+4(SB), Y12
	VBROADCASTSS expConstants<>+8(SB), Y11
	VBROADCASTSS expConstants<>+12(SB), Y10
	VBROADCASTSS expConstants<>+16(SB), Y9
	VXORPS Y8, Y8, Y8
	TESTQ CX, CX
	JZ done
loop:
	VMOVUPS (DI), Y0
	VSUBPS Y15, Y0, Y0
	VMAXPS Y14, Y0, Y0
	VMINPS Y13, Y0, Y0
	VMOVAPS Y0, Y1
	VFMADD213PS Y11, Y12, Y1
	VROUNDPS $1, Y1, Y1
	VMULPS Y10, Y1, Y2
	VSUBPS Y2, Y0, Y2
	VMULPS Y9, Y1, Y3
	VSUBPS Y3, Y2, Y2
	VBROADCASTSS expConstants<>+20(SB), Y3
	VBROADCASTSS expConstants<>+24(SB), Y4
	VFMADD213PS Y4, Y2, Y3
	VBROADCASTSS expConstants<>+28(SB), Y4
	VFMADD213PS Y4, Y2, Y3
	VBROADCASTSS expConstants<>+32(SB), Y5
	VFMADD213PS Y5, Y2, Y3
	VBROADCASTSS expConstants<>+36(SB), Y4
	VFMADD213PS Y4, Y2, Y3
	VBROADCASTSS expConstants<>+40(SB), Y5
	VFMADD213PS Y5, Y2, Y3
	VMULPS Y2, Y3, Y3
	VMULPS Y2, Y3, Y3
	VADDPS Y2, Y3, Y3
	VBROADCASTSS expConstants<>+44(SB), Y4
	VADDPS Y4, Y3, Y3
	VCVTTPS2DQ Y1, Y1
	VPBROADCASTD expConstants<>+48(SB), Y5
	VPADDD Y5, Y1, Y1
	VPSLLD $23, Y1, Y1
	VMULPS Y3, Y1, Y1
	VMOVUPS Y1, (DI)
	VADDPS Y1, Y8, Y8
	ADDQ $32, DI
	DECQ CX
	JNZ loop
done:
	VMOVUPS Y8, (BX)
	VZEROUPPER
	RET
