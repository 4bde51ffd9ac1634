#include "textflag.h"

// func bf16Octets(dst *float32, src *byte, n int)
//
// An element above a zero is its float32: words are unpacked beside those of X0.
TEXT ·bf16Octets(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	PXOR X0, X0

loop:
	MOVOU (SI), X1
	MOVO X0, X2
	MOVO X0, X3
	PUNPCKLWL X1, X2
	PUNPCKHWL X1, X3
	MOVOU X2, (DI)
	MOVOU X3, 16(DI)
	ADDQ $16, SI
	ADDQ $32, DI
	DECQ CX
	JNZ loop
	RET
