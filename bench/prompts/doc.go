// Package prompts holds the conversations that a benchmark sends: an embedded set of
// our own writing, and readers of the published sets' files.
//
// The embedded prompts were written for hsx and are under its licence. Published sets
// are read from the user's copy and never shipped. The prompts are spread over the
// eight categories of MT-Bench, so that a mean over them is one over kinds of text, and
// none asks for more than about 1,100 words or 200 lines: a cap of 2048 tokens cuts few
// answers short.
//
// It sends nothing and counts no tokens.
package prompts
