// Package stats holds the statistics of a benchmark: intervals, paired comparison, and
// what could have been detected.
//
// Noise has two sources, and each has its unit. Rates and latencies vary with the
// machine: the unit is the run, there are few, and their intervals are Student's t.
// Accept length varies with the prompt: the unit is the prompt, and its intervals are
// bootstraps over prompts, which are too narrow for few of them: below 20 prompts they
// give way to t.
//
// Values are measurements. One that is NaN, infinite or beyond ±1e60 is left out, as is
// one that is not at least 1e-60 where a logarithm is taken; a pair is left out whole.
// Nothing panics and no result is NaN.
package stats
