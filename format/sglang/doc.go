// Package sglang reads the hidden states in SGLang's JSON answers to /generate with
// return_hidden_states, and the requests that asked for them.
//
// It takes bytes and opens no files. It does not say which layers the states are
// of, nor which tokens: the JSON has neither, a row is [float32] as wide as it comes,
// and pairing an answer with its request is the caller's.
package sglang
