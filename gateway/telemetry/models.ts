// Model names as labels: the first few that the backend served, and "other" for whatever else a client may write.

/** A label's values live as long as the process, so their number has a limit. */
export const MAX_MODEL_LABELS = 16;
const OTHER_MODEL = 'other';

export interface ModelLabels {
  /** `served`: the backend answered for this name; what it refused never becomes a label. */
  of(model: string | null, served: boolean): string;
}

export function createModelLabels(): ModelLabels {
  const known = new Set<string>();
  return {
    of(model, served) {
      if (model === null) return OTHER_MODEL;
      if (known.has(model)) return model;
      if (!served || known.size >= MAX_MODEL_LABELS || model.length > 128) return OTHER_MODEL;
      known.add(model);
      return model;
    },
  };
}
