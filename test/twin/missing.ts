// A part that the tests need and this machine cannot give: its tests are skipped, by name. Anything else that fails is a failure.
export class MissingPart extends Error {
  override readonly name = 'MissingPart';
}
