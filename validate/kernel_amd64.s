#include "textflag.h"

// func bf16Pair(b *[2 * kernelBlock]byte, first uint64, l *kernelLanes)
//
// X0 and X1 are the sums of the two blocks, X2 the first element in every lane, X3 the
// bits in which any differs from it, X4 the greatest magnitudes, X5 the mask of
// magnitudes, X6 zero. An element above a zero is its float32.
TEXT ·bf16Pair(SB), NOSPLIT, $0-24
	MOVQ b+0(FP), AX
	MOVQ first+8(FP), BX
	MOVQ l+16(FP), CX
	VMOVQ BX, X2
	VPUNPCKLQDQ X2, X2, X2
	VMOVDQU 32(CX), X3
	VMOVDQU 48(CX), X4
	VPCMPEQW X5, X5, X5
	VPSRLW $1, X5, X5
	VPXOR X6, X6, X6
	VPXOR X0, X0, X0
	VPXOR X1, X1, X1
	MOVQ $32, DX

loop:
	VMOVDQU (AX), X7
	VMOVDQU 512(AX), X8
	VPXOR X7, X2, X9
	VPXOR X8, X2, X10
	VPOR X9, X3, X3
	VPOR X10, X3, X3
	VPAND X7, X5, X9
	VPAND X8, X5, X10
	VPMAXUW X9, X4, X4
	VPMAXUW X10, X4, X4
	VPUNPCKLWD X7, X6, X9
	VPUNPCKLWD X8, X6, X10
	VPUNPCKHWD X7, X6, X11
	VPUNPCKHWD X8, X6, X12
	VMULPS X9, X9, X9
	VMULPS X10, X10, X10
	VMULPS X11, X11, X11
	VMULPS X12, X12, X12
	VADDPS X9, X0, X0
	VADDPS X10, X1, X1
	VADDPS X11, X0, X0
	VADDPS X12, X1, X1
	ADDQ $16, AX
	DECQ DX
	JNZ loop

	VMOVUPS X0, (CX)
	VMOVUPS X1, 16(CX)
	VMOVDQU X3, 32(CX)
	VMOVDQU X4, 48(CX)
	RET
