// The switch that encrypts questions and answers to a key of the attested machine, and what that means here.
import { byId } from '../base/dom.ts';
import { carryWith, GatewayError, getModels, type Service } from '../base/gateway.ts';
import { collateral, type Settings } from '../proof/verifier.ts';

interface Sealing {
  serviceIs(service: Service | null): void;
}

export function createSealing(settings: () => Settings): Sealing {
  const field = byId('seal-field');
  const checkbox = byId<HTMLInputElement>('seal');
  const note = byId('seal-note');
  /** The roots under which the machine is verified now; null while nothing is sealed. */
  let roots: string | null = null;

  async function seal(): Promise<void> {
    const { service, simulatedRoots, collateral: asked } = settings();
    roots = simulatedRoots;
    note.textContent = 'Verifying the machine …';
    const sealed = import('../../verify/clients/sealed.ts').then(({ MEANING, sealedFetch }) =>
      sealedFetch({
        url: location.origin,
        // This page knows no software that it could demand: it says what was reached.
        policy: { minLevel: 'none' },
        collateral,
        // Where keys are required, a challenge would need one outside of the seal.
        challenge: service?.key_required !== true,
        without: { referenceValues: !asked, revocation: !asked },
        ...(simulatedRoots === '' ? {} : { simulatedRoot: simulatedRoots }),
        onSession: ({ level }) => {
          note.textContent = `Encrypted, to a machine of level ${level}. ${MEANING[level]}`;
        },
      }),
    );
    // From here on nothing leaves in the clear, also while the code for it is on its way.
    carryWith(async (input, init) => (await sealed)(input, init));
    try {
      await getModels();
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error;
      // A wrong key, or a backend that is away, was answered by the machine itself.
      if (note.textContent === 'Verifying the machine …') note.textContent = error.message;
    }
  }
  function change(): void {
    if (checkbox.checked) return void seal();
    roots = null;
    carryWith(null);
    note.textContent = '';
  }
  checkbox.addEventListener('change', change);

  return {
    serviceIs(service) {
      if (service === null) return;
      const { mode, available } = service.sealing;
      field.hidden = mode === 'off' || !(available || checkbox.checked);
      checkbox.disabled = mode === 'required';
      const forced = mode === 'required' && available && !checkbox.checked;
      if (forced) checkbox.checked = true;
      // A simulated machine that was started again has another root.
      if (forced || (roots !== null && roots !== settings().simulatedRoots)) change();
    },
  };
}
