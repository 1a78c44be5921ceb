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

// func scores8(q, keys, out unsafe.Pointer, groups, parts, chunks int, scale float32)
// computes the products of a query with 16 keys a group: keys [groups, E, 16], out [groups,
// 16], for E = parts * chunks * 8 dimensions. Lane j of the backend's vectors has the terms
// of dimensions j, j+8 and so on, those of each part first. The lanes are added as halves,
// then neighbors, then the rest.

#define TERM(d, a, b) \
	VBROADCASTSS (4*d)(R8), Y15 \
	VMULPS (64*d)(R9), Y15, Y14 \
	VADDPS Y14, a, a \
	VMULPS (64*d+32)(R9), Y15, Y13 \
	VADDPS Y13, b, b

// LANES computes the sum of lanes i and i+4 in Y4 and Y5.
#define LANES(i, part, chunk) \
	LEAQ (4*i)(SI), R8 \
	LEAQ (64*i)(DI), R9 \
	MOVQ R12, R11 \
	ZERO(Y4, Y5) \
	ZERO(Y6, Y7) \
part: \
	MOVQ R13, R10 \
	ZERO(Y8, Y9) \
	ZERO(Y10, Y11) \
chunk: \
	TERM(0, Y8, Y9) \
	TERM(4, Y10, Y11) \
	ADDQ $32, R8 \
	ADDQ $512, R9 \
	DECQ R10 \
	JNZ chunk \
	VADDPS Y8, Y4, Y4 \
	VADDPS Y9, Y5, Y5 \
	VADDPS Y10, Y6, Y6 \
	VADDPS Y11, Y7, Y7 \
	DECQ R11 \
	JNZ part \
	VADDPS Y6, Y4, Y4 \
	VADDPS Y7, Y5, Y5

TEXT ·scores8(SB), NOSPLIT, $0-52
	MOVQ q+0(FP), SI
	MOVQ keys+8(FP), DI
	MOVQ out+16(FP), BX
	MOVQ groups+24(FP), CX
	MOVQ parts+32(FP), R12
	MOVQ chunks+40(FP), R13
	VBROADCASTSS scale+48(FP), Y12
	MOVQ R12, DX
	IMULQ R13, DX
	SHLQ $9, DX
group:
	LANES(0, part0, chunk0)
	VMOVAPS Y4, Y0
	VMOVAPS Y5, Y1
	LANES(1, part1, chunk1)
	VADDPS Y4, Y0, Y0
	VADDPS Y5, Y1, Y1
	LANES(2, part2, chunk2)
	VMOVAPS Y4, Y2
	VMOVAPS Y5, Y3
	LANES(3, part3, chunk3)
	VADDPS Y4, Y2, Y2
	VADDPS Y5, Y3, Y3
	VADDPS Y2, Y0, Y0
	VADDPS Y3, Y1, Y1
	VMULPS Y12, Y0, Y0
	VMULPS Y12, Y1, Y1
	VMOVUPS Y0, (BX)
	VMOVUPS Y1, 32(BX)
	ADDQ DX, DI
	ADDQ $64, BX
	DECQ CX
	JNZ group
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
