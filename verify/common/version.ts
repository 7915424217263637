/** Of this software: package.json's, which `npm run make versions` copies here. */
export const VERSION = '0.2.0';
