// Package format is the vocabulary of hsx: dtypes, layers and their numbering,
// tensors, samples and layouts. It does no I/O and imports only the standard
// library, so that every other package can speak its nouns.
//
// P_k is the residual stream after decoder layer k, counted from 0, of a target
// with L layers; P_-1 is the output of the embedding. The final state is P_{L-1}
// before the final norm ([NormPre]) or after it ([NormPost]).
package format
