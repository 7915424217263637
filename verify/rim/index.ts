// Reference values: verified RIMs and their comparison with what a device measured.
export { type BiosIdParts, driverRimId, switchBiosRimId, vbiosRimId } from './id.ts';
export type { Measurement, MinimumSvn } from './manifest.ts';
export { type MatchedMeasurements, matchMeasurements, type ReportFacts } from './match.ts';
export { type Rim, type RimOptions, verifyRim } from './rim.ts';
