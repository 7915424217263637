// Turns the end of an exchange into numbers. Label values come from closed sets (routes, statuses, codes) or from ModelLabels.
import { CLIENT_LEFT, type Ended, PROVIDER } from './ended.ts';
import type { Metrics } from './metrics.ts';
import type { Operation, Watch } from './watch.ts';

export type Count = (watch: Watch, ended: Ended) => void;

export function createCount(metrics: Metrics): Count {
  return (watch, ended) => {
    metrics.requests.of(ended.method, ended.route, String(ended.status), ended.tee).observe(ended.total_ms / 1000);
    if (ended.error !== '') fail(ended);
    if (watch.operation !== null) generation(watch, watch.operation, ended);
    if (watch.attesting_ms !== 0) attestation(watch, ended);
  };

  function fail({ code, error }: Ended): void {
    if (code === null || code.startsWith('backend_')) metrics.backendErrors.inc({ code: error });
    else metrics.refusals.inc({ code: error });
  }

  function generation(watch: Watch, operation: Operation, ended: Ended): void {
    const { model } = ended;
    const error_type = ended.status === CLIENT_LEFT ? 'client_left' : ended.error;
    metrics.generations.of(operation, PROVIDER, model, error_type).observe(ended.total_ms / 1000);
    if (!watch.stream || watch.pieces === 0) return;
    metrics.firstToken.of(operation, PROVIDER, model).observe((watch.first_ms - watch.began_ms) / 1000);
    if (watch.pieces === 1 || error_type !== '') return;
    metrics.outputToken
      .of(operation, PROVIDER, model)
      .observe((watch.last_ms - watch.first_ms) / 1000 / (watch.pieces - 1));
    metrics.gap.of().observe(watch.gap_ms / 1000);
  }

  function attestation(watch: Watch, ended: Ended): void {
    const until_ms = watch.attested_ms === 0 ? performance.now() : watch.attested_ms;
    const outcome = watch.attested_ms !== 0 ? 'attested' : ended.tee === 'left' ? 'left' : 'failed';
    metrics.attestations.of(outcome).observe((until_ms - watch.attesting_ms) / 1000);
    if (watch.phases === null) return;
    const { queue_ms, collection_ms, appraisal_ms, check_ms } = watch.phases;
    metrics.phases.of('queue').observe(queue_ms / 1000);
    metrics.phases.of('collection').observe(collection_ms / 1000);
    metrics.phases.of('appraisal').observe(appraisal_ms / 1000);
    metrics.phases.of('check').observe(check_ms / 1000);
  }
}
